"""inspect: every figure of a model."""

from __future__ import annotations

import json
from pathlib import Path

import click

from playground.training.manifest import CheckpointError

from .terminal import model_of, refuse


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("sequence")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Output folder of the figures.",
)
@click.option(
    "--n",
    type=click.IntRange(1, 10_000),
    default=512,
    show_default=True,
    help="Held-out sequences for the ablation of each component.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def inspect(checkpoint: Path, sequence: str, out: Path, n: int, as_json: bool) -> None:
    """Export figures of a checkpoint on a sequence such as "3 1 4".

    They show attention weights, ablations and the logit lens. Each figure is saved as PNG, SVG
    and PDF, with its data as CSV or JSON.
    """
    from playground.plots.heads import FIGURES

    manifest, family = model_of(checkpoint)
    known = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf", "csv", "json")}
    if out.exists() and any(path.name not in known for path in out.iterdir()):
        refuse(f"--out {out} is a folder with other things in it; choose a new or empty one")

    import torch

    from playground.inspection.subject import NotInspectable
    from playground.plots.drawn import draw_all
    from playground.runs.history import read_lines
    from playground.tasks import UnknownSymbol

    torch.set_num_threads(1)  # more threads are slower at this size

    def tell(sentence: str) -> None:
        click.echo(f"{sentence} ...", err=True)

    run = run_of(checkpoint)
    try:
        lines = [line for line in read_lines(run) if line["step"] <= manifest.step]
        earlier = earlier_weights(run, manifest.step)
        found, files = draw_all(
            out,
            manifest.config,
            family,
            sequence,
            n,
            lines=lines,
            scores=manifest.scores,
            history=earlier,
            tell=tell,
        )
    except (UnknownSymbol, NotInspectable, CheckpointError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out {out} cannot be written: {error.strerror}; choose another folder")
    missed = next(row for row in found["ablation"] if row["name"] == found["head"]["title"])
    if as_json:
        click.echo(
            json.dumps(
                {"out": str(out), "files": [path.name for path in files], "most_missed": missed}
            )
        )
        return
    before, after, asked = missed["exact_match_before"], missed["exact_match"], missed["n"]
    click.echo(
        f"most important head: {missed['name']}; without it {after:.2%} instead of {before:.2%} "
        f"of {asked:,} held-out sequences"
    )
    click.echo(f"{len(found)} figures with their data in {out}: {', '.join(found)}")


def run_of(checkpoint: Path) -> Path:
    """Return the folder with a checkpoint's metrics and weight history: its run's, or its own."""
    home = checkpoint.resolve().parent.parent
    return (
        home
        if not (checkpoint / "metrics.jsonl").is_file() and (home / "metrics.jsonl").is_file()
        else checkpoint
    )


def earlier_weights(run: Path, step: int) -> dict[int, Path]:
    """Return the stored weights of a run up to `step`, evenly thinned: {step: file}.

    Empty for a checkpoint without a run.
    """
    from playground.runs.history import kept_steps, thinned, weights_path

    return {
        each: weights_path(run, each)
        for each in thinned([each for each in kept_steps(run) if each <= step])
    }
