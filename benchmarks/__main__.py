"""python -m benchmarks [SUBSET ...]: measure, keep, rewrite RESULTS.md."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path

import click
import psutil

from benchmarks import accuracy, distributed, gpu, ingredients, inspecting, lengths, page, published, recurrent, startup, tasks, watching
from playground.training.manifest import current_versions

HERE = Path(__file__).parent
STILL = (
    "Nothing here was run on a GPU yet: eager, compiled and captured steps a second against width and batch, beside the limits of "
    "bandwidth and matrix products (`python -m benchmarks gpu`), and several GPUs or machines. Captured steps equal single ones to the bit "
    "on a processor, with the capturing call replaced (`tests/training/test_captured.py`)."
)
SCORED = (
    "Presets of `playground/training/presets.py`; scored every 10 steps (paper and write-up: 25) on 256 held-out sequences, and on "
    "2,000 to confirm. Seconds count training and scoring."
)
SUBSETS = {
    "accuracy": (accuracy, "Steps to 99.9 % exact match", SCORED),
    "ingredients": (ingredients, "What each ingredient buys", f"Reversal; what is named is taken out, all else stays. {SCORED}"),
    "tasks": (
        tasks,
        "How hard each task is",
        f"The fast preset on lengths 1 to 10 of ten symbols (brackets: two), the learning rate falling over four fifths of {tasks.BUDGET} "
        "steps; scored every 10 steps on 256 held-out sequences, and on 2,000, or as many as there are, to confirm.",
    ),
    "published": (
        published,
        "As published",
        "Claims of others, trained here with their settings, one seed. What differs from the originals, and why, `python -m playground "
        "published` and the Lab say; their settings were written down from memory and not held against the sources.",
    ),
    "lengths": (
        lengths,
        "Asked for longer sequences than were trained",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, asked 200 held-out sequences of each length to 50; median over 3 seeds. "
        "Tables of learned positions have rows for all 50, of which training never reaches those behind the tenth.",
    ),
    "recurrent": (
        recurrent,
        "Where recurrent models break",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, asked 200 held-out sequences of each length to 30; median over 3 seeds.",
    ),
    "distributed": (
        distributed,
        "Two processes against one",
        "One run, batch 128 in all, length 10, 2+2 layers, d_ff twice d_model; on one machine over gloo, a thread for each process. Gain: "
        "two against one in the same round, median and range.",
    ),
    "watching": (
        watching,
        "What watching costs",
        "d_model 64, 2+2 layers, batch 32, length 10. Training is pinned to one core, server and watchers to another.",
    ),
    "page": (page, "The page", "A real Chromium on the same machine, drawing in software."),
    "inspecting": (inspecting, "Looking into models", "A real Chromium on the same machine, drawing in software."),
    "gpu": (
        gpu,
        "On a GPU",
        "Steps a second, median of 5 rows of 64; lengths 10, d_ff twice d_model. Eager asks the device after every step, captured takes a "
        "row of CUDA graphs; a step reads and writes at least 9 numbers a parameter.",
    ),
    "startup": (startup, "Start-up", "Whole processes, timed from outside; the machine's file cache is warm."),
}


def machine() -> str:
    """What the figures were measured on."""
    versions = current_versions()
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    system = f"{cores} shared cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
    return f"{system}; torch {versions['torch']}, Python {versions['python']}"


def write_results() -> None:
    """RESULTS.md out of what is under results/."""
    parts = [
        "# Results",
        "",
        "Written by `python -m benchmarks`; do not edit. The machines are shared and noisy: absolute seconds vary threefold between days, "
        "step counts do not vary at all for a given seed, machine and version.",
    ]
    for name, (module, title, note) in SUBSETS.items():
        path = HERE / "results" / f"{name}.json"
        if path.exists():
            kept = json.loads(path.read_text())
            parts += [
                "",
                f"## {title}",
                "",
                f"`python -m benchmarks {name}` on {kept['date']}, {kept['machine']}.",
                note,
                "",
                module.table(kept["rows"]),
            ]
    parts += ["", "## Still to be measured", "", STILL]
    (HERE / "RESULTS.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


@click.command()
@click.argument("subsets", nargs=-1, type=click.Choice(list(SUBSETS)))
def main(subsets: tuple[str, ...]) -> None:
    """Measure the SUBSETS (all of them when none is named) and rewrite RESULTS.md."""
    (HERE / "results").mkdir(exist_ok=True)
    for name in subsets or SUBSETS:
        rows = SUBSETS[name][0].measure()
        if not rows:
            continue
        kept = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "rows": rows}
        (HERE / "results" / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        write_results()


if __name__ == "__main__":
    main()
