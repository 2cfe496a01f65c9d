"""python -m benchmarks [SUBSET ...]: measure, keep, rewrite RESULTS.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks import (
    accuracy,
    accuracy_vs_references,
    decoding,
    distributed,
    gpu,
    inspection_latency,
    lengths,
    load_soak,
    one_client,
    page,
    page_history,
    preset_ablation,
    published,
    recurrent_lengths,
    scaling,
    startup,
    steps,
    tasks,
    viewer_overhead,
)
from benchmarks._results import format_commit, load_results, replace_row, save_results
from benchmarks.load_users import POLLS_PER_SECOND
from playground.tasks import TASKS

BENCHMARKS_DIR = Path(__file__).parent
NO_GPU_NOTE = (
    "Nothing here was run on a GPU yet: eager, compiled and captured steps a second against width and batch, beside the limits of "
    "bandwidth and matrix products (`python -m benchmarks gpu`), and several GPUs or machines. Captured steps equal single ones to the bit "
    "on a processor, with the capturing call replaced (`tests/unit/training/test_cuda_graphs.py`)."
)
ACCURACY_NOTE = (
    "Presets of `playground/training/presets.py`; scored every 10 steps (paper and write-up: 25) on 256 held-out sequences, and on "
    "2,000 to confirm; the 256 hold more short ones, which is some 0.4 points. CPU seconds count training "
    "and scoring. Seeds that never reach "
    "the goal count in the median as longer than all others."
)
REFERENCES_NOTE = (
    "Against models of the same sizes (d_model 64, 4 heads, 2+2 layers, d_ff 128), on the same batches, with the same Adam, clipping and "
    "warm-up, scored every 10 steps on the same 256 held-out sequences, and on 2,000 to confirm. Ours is the fast preset as it comes; a "
    "peer has its own best learning rate of five, and the better of two lengths over which it falls. Runs alternate, seed by seed, on one "
    "thread, and seconds are those of the processor. Ratios are of seconds without scoring, and only between models without dropout."
)
SUBSETS: dict[
    str, tuple[Any, str, str]
] = {  # what has measure() and table(rows), its title, what holds for all of its rows
    "accuracy": (accuracy, "Steps to 99.9 % exact match", ACCURACY_NOTE),
    "ingredients": (
        preset_ablation,
        "What each ingredient buys",
        f"Reversal; what is named is taken out, all else stays. {ACCURACY_NOTE}",
    ),
    "tasks": (
        tasks,
        "How hard each task is",
        "The fast preset on lengths 1 to 10 of ten symbols (brackets: lengths 1 to 16 of two, as many balanced sequences as others), the "
        f"learning rate falling over four fifths of {tasks.MAX_STEPS} steps; scored every 10 steps on 256 held-out sequences, and on 2,000, "
        "or as many as there are, to confirm.",
    ),
    "published": (
        published,
        "As published",
        "Claims of others, trained here with their settings, one seed. What differs from the originals, and why, `python -m playground "
        "published --json` and the Lab say; their settings were written down from memory and not held against the sources.",
    ),
    "lengths": (
        lengths,
        "Asked for longer sequences than were trained",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, asked 200 held-out sequences of each length to 50; median over 3 seeds. "
        "Tables of learned positions have rows for all 50, of which training never reaches those behind the tenth.",
    ),
    "recurrent": (
        recurrent_lengths,
        "Where recurrent models break",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, asked 200 held-out sequences of each length to 30; median over 3 seeds.",
    ),
    "distributed": (
        distributed,
        "Two processes against one",
        "One run, batch 128 in all, length 10, 2+2 layers, d_ff twice d_model; on one machine over gloo, a thread for each process. Gain: "
        "two against one in the same round, median and range.",
    ),
    "peers": (accuracy_vs_references.SHORT, "Beside the peers: learning", REFERENCES_NOTE),
    "peers-long": (
        accuracy_vs_references.LONG,
        "Beside the peers: learning longer sequences",
        REFERENCES_NOTE,
    ),
    "steps": (
        steps,
        "Beside the peers: steps a second",
        "Short turns, one after the other, in one process; ratios within a round, the median over rounds and its bootstrapped interval. "
        "4 heads, 2+2 layers, d_ff twice d_model; the same batches of reversal for all, drawn within the step. One thread unless it says "
        "otherwise. The peak is that of a product of two 1024 x 1024 matrices in float32, one thread, measured in the same rounds; a "
        "step's FLOPs are those of its matrix products.",
    ),
    "decoding": (
        decoding,
        "Beside the peers: greedy decoding",
        "20 symbols from sources of 20 (d_model 64, 4 heads, 2+2 layers, d_ff 128), in turns as above. Nobody ends early.",
    ),
    "growth": (
        scaling,
        "How a step grows",
        "The median over steps that take turns; memory is that of tensors, as torch hands it out.",
    ),
    "watching": (
        viewer_overhead,
        "What watching costs",
        "d_model 64, 2+2 layers, batch 32, length 10. Training is pinned to one core, server and watchers to another.",
    ),
    "page": (page, "The page", "A real Chromium on the same machine, drawing in software."),
    "inspecting": (
        inspection_latency,
        "Looking into models",
        "A real Chromium on the same machine, drawing in software.",
    ),
    "gpu": (
        gpu,
        "On a GPU",
        "Steps a second, median of 5 rows of 64; lengths 10, d_ff twice d_model. Eager asks the device after every step, captured takes a "
        "row of CUDA graphs; a step reads and writes at least 9 numbers a parameter.",
    ),
    "soak": (
        load_soak,
        "Many at once, for long, with faults",
        f"Four owners' runs hold the four places, {load_soak.N_SESSIONS} sessions watch at {POLLS_PER_SECOND} Hz, {load_soak.N_USERS} visitors at a time "
        "come, start runs that wait in line, pause, inspect, ask, send, fetch and publish, and go. Survived: every owner's run goes on, or "
        "waits in line again. Client, Hub and app share the machine. `python -m benchmarks.load_soak --minutes 120 --keep` takes as long as one "
        "likes.",
    ),
    "one-client": (
        one_client,
        "One hostile client against the others",
        "Each attack comes from one address, and the others' polls are timed. `python -m benchmarks.one_client --seconds 60 --keep` takes "
        "as long as one likes.",
    ),
    "startup": (
        startup,
        "Start-up",
        "Whole processes, timed from outside; the machine's file cache is warm.",
    ),
    "before": (
        page_history,
        "The page, before and after",
        "First measurements, out of this repository's history, and the latest ones, from other days and hours of a shared machine: tenfold "
        "differences say something, small ones nothing. Start-up has all the tabs to build that came since.",
    ),
}


def write_results() -> None:
    """RESULTS.md out of what is under results/."""
    parts = [
        "# Results",
        "",
        "Written by `python -m benchmarks`; do not edit. The machines are shared and noisy: absolute seconds vary threefold between days, "
        "step counts do not vary at all for a given seed, machine, version and commit. Each table names the commit it was measured at.",
    ]
    for name, (module, title, note) in SUBSETS.items():
        content = load_results(name)
        if content is not None:
            cut = (
                " Cut off: the same command goes on from here." if content.get("unfinished") else ""
            )
            where = f"`python -m benchmarks {name}` on {content['date']} {format_commit(content)}, {content['machine']}.{cut}"
            parts += ["", f"## {title}", "", where, note, "", module.table(content["rows"])]
    parts += ["", "## Still to be measured", "", NO_GPU_NOTE]
    (BENCHMARKS_DIR / "RESULTS.md").write_text("\n".join(parts) + "\n", encoding="utf-8")


@click.command()
@click.argument("subsets", nargs=-1, type=click.Choice(list(SUBSETS)))
@click.option(
    "--only",
    type=click.Choice(list(TASKS)),
    default=None,
    help="With the subset tasks alone: measure one task's row again.",
)
@click.option(
    "--write", is_flag=True, help="Measure nothing; write RESULTS.md again out of what is kept."
)
def main(subsets: tuple[str, ...], only: str | None, write: bool) -> None:
    """Measure the SUBSETS (all of them when none is named) and rewrite RESULTS.md."""
    if only and subsets != ("tasks",):
        raise click.UsageError(
            "--only takes a row of the table tasks: python -m benchmarks tasks --only brackets"
        )
    if only:
        replace_row("tasks", "task", tasks.measure_task(only))
    for name in () if only or write else subsets or SUBSETS:
        rows = SUBSETS[name][0].measure()
        if rows:
            save_results(name, rows)
        write_results()
    write_results()


if __name__ == "__main__":
    main()
