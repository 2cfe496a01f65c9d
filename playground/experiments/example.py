"""Read the finished experiment that the app includes as an example.

scripts/record_example_experiment.py measures it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

EXAMPLE_ID = "example"
EXAMPLE_FILE = Path(__file__).with_suffix(".json")


@cache
def load_example() -> dict[str, Any]:
    """Return the example as `ExperimentService.details` describes an experiment.

    The entry `example` describes where and how it was measured.
    """
    details: dict[str, Any] = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    return details
