"""The picture of the first paint: the model that a first visit opens, from its recording."""

import json
from typing import Any

from markupsafe import Markup

from playground import ASSETS_DIR
from playground.runs.access import CHECKPOINT_PREFIX

FIRST_CHECKPOINT = CHECKPOINT_PREFIX + "reverse"  # the model that a first visit opens
N_SHADES = 4
BLOCKS = {  # by stack, from the top of a layer: kind, title and name of each block
    "encoder": (
        ("feed-forward", "Feed-forward", "feed_forward"),
        ("encoder", "Self-attention", "self_attn"),
    ),
    "decoder": (
        ("feed-forward", "Feed-forward", "feed_forward"),
        ("cross", "Cross-attention", "cross_attn"),
        ("decoder", "Masked self-attention", "self_attn"),
    ),
}


def draw_map(weights: list[int], n_columns: int) -> list[Markup]:
    """Return the paths of a head's squares by shade, the lightest first; the largest is darkest.

    `weights` are thousandths, row by row; a square has the size 1.
    """
    paths, largest = [""] * N_SHADES, max(weights)
    for i, weight in enumerate(weights):
        if shade := round(N_SHADES * weight / largest):
            paths[shade - 1] += f"M{i % n_columns} {i // n_columns}h1v1h-1"
    return [Markup(path) for path in paths]


def first_view() -> dict[str, Any]:
    """Return what the template first_view.html.j2 draws: the last step of the recording."""
    folder = ASSETS_DIR / "checkpoints" / FIRST_CHECKPOINT.removeprefix(CHECKPOINT_PREFIX)
    recording = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    frame = recording["frames"][-1]
    attention, shares = frame["attention"], frame["contributions"]
    source, target = [*recording["source"], "EOS"], frame["probe"]["target"]
    n_keys = {"encoder": len(source), "cross": len(source), "decoder": len(target)}
    stacks = {
        side: [
            [
                {
                    "kind": kind,
                    "title": title,
                    "share": shares[f"{side}_layers.{layer}.{name}"],
                    "heads": [
                        draw_map(weights, n_keys[kind])
                        for weights in (attention[kind][layer] if kind in attention else [])
                    ],
                }
                for kind, title, name in blocks
            ]
            for layer in reversed(range(len(attention[side])))
        ]
        for side, blocks in BLOCKS.items()
    }
    weights = [
        {"key": i % len(source), "query": i // len(source), "weight": weight / 1000}
        for i, weight in enumerate(attention["cross"][-1][0])
        if weight > 20
    ]
    return {"stacks": stacks, "source": source, "target": target, "weights": weights}
