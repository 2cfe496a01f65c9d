"""All figures of inspection by name, and their files."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from .ablation import ablation_ranking, contributions
from .attention import attention_grid, cross_attention_by_step, single_head
from .heads import head_scores, head_scores_over_training
from .logit_lens import logit_lens
from .positions import positions, sinusoidal_table
from .style import save_formats
from .training import exact_match_by_length, training_curve

FIGURES: dict[str, Callable[[Any], Figure]] = {
    "encoder-attention": attention_grid,
    "decoder-attention": attention_grid,
    "cross-attention": attention_grid,
    "head": single_head,
    "cross-attention-by-step": cross_attention_by_step,
    "ablation": ablation_ranking,
    "ablation-groups": lambda rows: ablation_ranking(rows, "Ablation of each group"),
    "keep-only": ablation_ranking,
    "head-scores": head_scores,
    "heads-over-training": head_scores_over_training,
    "logit-lens": logit_lens,
    "contributions": contributions,
    "positions": positions,
    "sine-waves": sinusoidal_table,
    "loss": lambda rows: training_curve(
        [{name: value for name, value in row.items() if value is not None} for row in rows]
    ),
    "exact-match-by-length": exact_match_by_length,
}


def write(folder: Path, name: str, data: Any) -> list[Path]:
    """Draw the figure of this name as .png, .svg and .pdf, and write its data.

    Tables are written as .csv, other data as .json.
    """
    paths = save_formats(FIGURES[name](data), folder, name)
    if isinstance(data, list):
        paths.append(folder / f"{name}.csv")
        with open(paths[-1], "w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(data[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(data)
    else:
        paths.append(folder / f"{name}.json")
        paths[-1].write_text(json.dumps(data, ensure_ascii=False) + "\n", encoding="utf-8")
    return paths
