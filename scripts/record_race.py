"""Record the race that Compare plays at the first visit: `python -m scripts.record_race`."""

from __future__ import annotations

import datetime
import json
import os
import platform
from typing import Any

import torch

from playground import CHECKPOINTS_DIR
from playground.jobs.progress import ProgressReporter
from playground.pretrained.race import race
from playground.ui.page import STATIC_DIR

REQUEST = {"lanes": ["transformer", "one-head", "decoder-only", "recurrent"], "seed": 0}


def main() -> None:
    rows: list[dict[str, Any]] = []
    recorded: dict[str, Any] = {}

    def receive(kind: str, *content: Any) -> None:
        if kind == "row":
            rows.append(content[0])
            print(content[0], flush=True)
        elif kind == "partial":
            recorded.update(content[0])

    torch.set_num_threads(1)
    race(REQUEST | {"checkpoint": str(CHECKPOINTS_DIR / "reverse")}, ProgressReporter(receive))
    recorded |= {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, PyTorch {torch.__version__}",
        "rows": rows,
    }
    path = STATIC_DIR / "compare" / "race.json"
    path.write_text(json.dumps(recorded, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
