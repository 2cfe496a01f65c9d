"""Measure, store the results, and write RESULTS.md: `python -m benchmarks [SUBSET ...]`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from benchmarks import (
    accuracy,
    accuracy_vs_references,
    baseline,
    decoding,
    engine,
    engine_outputs,
    fast_preset,
    gpu,
    induction,
    lengths,
    load_soak,
    one_client,
    page,
    page_history,
    page_session,
    page_traffic,
    preset_ablation,
    published,
    reactions,
    recurrent_lengths,
    scaling,
    slider,
    start_methods,
    startup,
    steps,
    stored_runs,
    summary,
    tasks,
    viewer_overhead,
)
from benchmarks._results import format_commit, load_results, replace_row, save_results
from benchmarks.load_users import POLLS_PER_SECOND
from playground.experiments.replications import CLAIMS
from playground.tasks import TASKS

BENCHMARKS_DIR = Path(__file__).parent
NOT_MEASURED_NOTE = "No measurement ran on several machines yet."
ACCURACY_NOTE = (
    f"Presets of `playground/training/presets.py`; seeds from {accuracy.FIRST_SEED} on. Evaluated "
    "every 10 steps (paper and tutorial: 25) on 256 held-out sequences, and on 2,000 to confirm. "
    "The 256 contain more short sequences, which adds about 0.4 percentage points. CPU seconds "
    "include training and evaluation. A seed that never reaches 99.9 % counts in the median as "
    "longer than all others."
)
SUMMARY_NOTE = (
    "A goal is met when the median meets it, unless it is for every seed. That is no test: the "
    "ranges are in the tables."
)
REFERENCES_NOTE = (
    "Models of the same size (d_model 64, 4 heads, 2+2 layers, d_ff 128) train on the same batches "
    "with the same clipping. They are evaluated every 10 steps on the same 256 held-out sequences, "
    "and on 2,000 to confirm. Ours is the unchanged fast preset. A reference model has the preset "
    "adam with its own best learning rate of five, and the better of two decay lengths. "
    "`nn.Transformer` at its best has pre-norm and learned positions. As in the tutorial, it has "
    "post-norm, sinusoidal positions and dropout. Trained like ours: with Muon, averaged weights "
    "and the schedule of the fast preset, at the best of three rates. Runs alternate, seed by "
    "seed, on one thread; seconds are CPU seconds. Ratios use seconds without evaluation, and "
    "compare only models without dropout."
)
# Each subset: a module with `measure()` and `table(rows)`, a title, and a note on all rows.
SUBSETS: dict[str, tuple[Any, str, str]] = {
    "accuracy": (accuracy, "Steps to 99.9 % exact match", ACCURACY_NOTE),
    "baseline": (
        baseline,
        "CPU seconds against an earlier commit",
        f"Both commits train their own fast preset, in turns, with seeds from "
        f"{accuracy.FIRST_SEED} on; each run is a process with one thread. CPU seconds include "
        "evaluation.",
    ),
    "fast-preset": (
        fast_preset,
        "The fast preset against version 0.2.0",
        "Reversal. Version 0.2.0 is the preset adam with padded batches, in the same code. Packed: "
        "several sequences share a row of the batch, instead of padding. The presets take short "
        f"turns on one thread; a run of the second table ends after {fast_preset.MAX_STEPS} steps.",
    ),
    "ingredients": (
        preset_ablation,
        "Ablation of the fast preset",
        "Reversal. Each row trains without one setting of the preset, or with the one in "
        f"brackets instead. {ACCURACY_NOTE}",
    ),
    "tasks": (
        tasks,
        "Difficulty of each task",
        "The fast preset on lengths 1 to 10 of ten symbols (brackets: lengths 1 to 16 of two "
        "symbols, half of the sequences balanced). The learning rate decays over four fifths of "
        f"{tasks.MAX_STEPS} steps. Evaluated every 10 steps on 256 held-out sequences, and on "
        "2,000, or as many as exist, to confirm.",
    ),
    "published": (
        published,
        "Replications of published results",
        "Published results, trained here with the settings of their sources. *Compare* lists the "
        "deviations.",
    ),
    "induction": (
        induction,
        "Induction heads with one and with two layers",
        "The runs of the lesson *Induction heads*, one thread. Prefix matching is that of the best "
        "head on 256 held-out sequences, copying that of the same head; lowest and highest seed.",
    ),
    "lengths": (
        lengths,
        "Length generalization",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, evaluated on 200 held-out sequences "
        f"of each length up to 50; median (range) over {lengths.SEEDS} seeds. Tables of learned "
        "positions have rows for all 50, but training never reaches those after the eleventh: ten "
        "tokens and EOS.",
    ),
    "recurrent": (
        recurrent_lengths,
        "Length generalization of recurrent models",
        "Reversal, trained on lengths 1 to 10 for 1,000 steps, evaluated on 200 held-out sequences "
        f"of each length up to 30; median (range) over {recurrent_lengths.SEEDS} seeds.",
    ),
    "peers": (
        accuracy_vs_references.SHORT,
        "Compared with reference models: training",
        REFERENCES_NOTE,
    ),
    "peers-long": (
        accuracy_vs_references.LONG,
        "Compared with reference models: training on longer sequences",
        "As above, with d_model 128, d_ff 256 and sequences of up to 50 tokens. A run takes "
        "minutes, so there is one seed and no search: a reference model has two learning rates "
        "with Adam, the best one of most short runs and that of the preset adam.",
    ),
    "steps": (
        steps,
        "Compared with reference models: steps per second",
        "The models take short turns in one process. Each ratio is that of one round; the table "
        "has the median over rounds and its bootstrapped 95 % interval. 4 heads, 2+2 layers, d_ff "
        "twice d_model; the same batches of reversal for all, sampled within the step. One thread "
        "unless the row names another number. The peak is the speed of a product of two "
        "1024 x 1024 float32 matrices on one thread, in the same rounds. With two threads, the "
        "share can therefore exceed 1. FLOPs (floating-point operations) count matrix products "
        "only.",
    ),
    "decoding": (
        decoding,
        "Compared with reference models: greedy decoding",
        "20 tokens from sources of 20 (d_model 64, 4 heads, 2+2 layers, d_ff 128); the models take "
        "turns, as above. No model may end a sequence early. The ratios compare with BART's "
        "generate.",
    ),
    "growth": (
        scaling,
        "Scaling of a training step",
        "The sizes take turns, step by step; memory is that of tensors, as PyTorch's allocator "
        "reports it. The second table has the exponent p of the growth with size^p.",
    ),
    "watching": (
        viewer_overhead,
        "Overhead of viewers",
        "d_model 64, 2+2 layers, batch size 32, length 10. Training is pinned to one core, the "
        "server and the viewers to another.",
    ),
    "page": (page, "The page", "Chromium on the same machine, with software rendering."),
    "slider": (
        slider,
        "Frame times of the slider",
        "The slider is dragged over a synthetic history of 100,000 recorded steps. Times in ms; "
        "Chromium on the same machine, with software rendering.",
    ),
    "engine": (
        engine,
        "Switches of the exported page and of Train, and keys",
        "A head is switched off or on while the page counts right outputs in the background, or a "
        "digit of the input changes. The time ends when the frame with the new output is drawn. "
        "Chromium on the same machine, with software rendering. The goal is a median of 20 ms, and "
        "60 ms for 95 %.",
    ),
    "engine-outputs": (
        engine_outputs,
        "Outputs of the browser's engine against PyTorch",
        "Bundled models, and two that the command trains. Both generate the most likely tokens for "
        "the same held-out sequences, with float32 weights; node runs the engine. The logits "
        "compared are those after each token of the right output.",
    ),
    "page-traffic": (
        page_traffic,
        "Size of the page",
        "Chromium on the same machine, with an empty cache at the first visit. Responses from the "
        "browser's cache do not count. Opening a tab includes the polls of its first seconds.",
    ),
    "reactions": (
        reactions,
        "Reactions of the Train tab",
        "A run trains, and one more process is always at work, on two cores. A time begins with "
        "the action and ends in the next task after the frame that has its effect. Chromium on "
        "the same machine, with software rendering.",
    ),
    "page-session": (
        page_session,
        "A long session of the page",
        "Chromium on the same machine; the heap is read after a garbage collection. A task of the "
        "main thread counts with its CPU time, rendering included.",
    ),
    "gpu": (
        gpu,
        "GPU",
        "Steps per second, median of 5 rows of 64 steps (on the CPU of the same machine: 4); "
        "length 10, d_ff twice d_model, Adam. Loss: the mean of the 10 steps up to this one, one "
        "seed. Eager is what training uses. Compiled: `torch.compile`. Graphed: forward and "
        "backward pass with `torch.cuda.make_graphed_callables`. A step reads and writes at least "
        "9 numbers per parameter. Commit 3e7d660 has the table of whole steps as CUDA graphs, "
        "removed since: 6.3 times (5.8 to 7.3) as fast as eager steps at d_model 64 and batch 32.",
    ),
    "soak": (
        load_soak,
        "Soak test with faults",
        f"Runs of four owners hold the four slots. {load_soak.N_SESSIONS} sessions poll at "
        f"{POLLS_PER_SECOND} Hz. {load_soak.N_USERS} users at a time start runs that queue, pause, "
        "inspect, predict, upload, download, publish, and leave. Survived: afterwards, the run of "
        "every owner trains or is queued. Clients, Hub and app share the machine. "
        "`python -m benchmarks.load_soak --minutes 120 --keep` sets the duration.",
    ),
    "one-client": (
        one_client,
        "One hostile client against the others",
        "Each attack comes from one address. The table has the response times of the other "
        "clients' polls, in ms: median (p50), 95th percentile (p95) and longest. "
        "`python -m benchmarks.one_client --seconds 60 --keep` sets the duration.",
    ),
    "stored-runs": (
        stored_runs,
        "An experiment with 10,000 stored runs",
        "The results are synthetic: 1,000 combinations of two settings, ten seeds each, with "
        "curves of 20 evaluations. The first answer to the page has every combination.",
    ),
    "startup": (
        startup,
        "Start-up",
        "Whole processes, timed from outside; the file cache of the machine is warm.",
    ),
    "start-methods": (
        start_methods,
        "Start methods of workers",
        "Small runs of 30 steps, one at a time. Windows has only new interpreters, with a spare "
        "one that has imported PyTorch; the default of macOS is the same. Warm: it has finished "
        "its imports. Memory is what no other process shares.",
    ),
    "before": (
        page_history,
        "History of the page",
        "The first measurements, from the history of this repository, and the latest ones, from "
        "other days on a shared machine. Absolute times vary threefold between days; these values "
        "have no n or range here, so smaller differences may be noise. The latest start-up also "
        "builds the tabs that were added since.",
    ),
}

# The subsets whose rows can be measured one by one: the key of a row, its names, its measurement.
SINGLE_ROWS: dict[str, tuple[str, Collection[str], Callable[[str], dict[str, Any]]]] = {
    "published": ("name", CLAIMS, published.measure_claim),
    "tasks": ("task", TASKS, tasks.measure_task),
}


def write_results() -> None:
    """Write RESULTS.md from the files in results/."""
    parts = [
        "# Results",
        "",
        "Written by `python -m benchmarks`; do not edit. The machines are shared and noisy: "
        "absolute seconds vary threefold between days. Step counts are the same for the same seed, "
        "machine, version and commit. Each table names the commit that was measured. The "
        "[glossary](../docs/glossary.md) explains the terms.",
    ]
    if results := summary.summarize():
        parts += ["", "## Summary", "", SUMMARY_NOTE, "", summary.table(results)]
    for name, (module, title, note) in SUBSETS.items():
        content = load_results(name)
        if content is not None:
            is_unfinished = content.get("unfinished")
            note_on_rest = " Incomplete: the same command continues it." if is_unfinished else ""
            where = (
                f"`python -m benchmarks {name}` on {content['date']} {format_commit(content)}, "
                f"{content['machine']}.{note_on_rest}"
            )
            parts += ["", f"## {title}", "", where, note, "", module.table(content["rows"])]
    parts += ["", "## Not measured yet", "", NOT_MEASURED_NOTE]
    (BENCHMARKS_DIR / "RESULTS.md").write_text("\n".join(parts) + "\n", encoding="utf-8")
    summary.write_figure()


@click.command()
@click.argument("subsets", nargs=-1, type=click.Choice(list(SUBSETS)))
@click.option(
    "--only",
    metavar="ROW",
    help="With the subset tasks or published: measure the row of one task or claim again.",
)
@click.option(
    "--write", is_flag=True, help="Write RESULTS.md from the stored results, without a measurement."
)
def main(subsets: tuple[str, ...], only: str | None, write: bool) -> None:
    """Measure the SUBSETS, by default all, and write RESULTS.md."""
    if only:
        key, names, measure_row = SINGLE_ROWS.get(" ".join(subsets), ("", (), None))
        if measure_row is None or only not in names:
            raise click.UsageError(
                "--only needs a task after tasks, or a claim after published: "
                "python -m benchmarks tasks --only brackets"
            )
        replace_row(subsets[0], key, measure_row(only))
    for name in () if only or write else subsets or SUBSETS:
        rows = SUBSETS[name][0].measure()
        if rows:
            save_results(name, rows)
        write_results()
    write_results()


if __name__ == "__main__":
    main()
