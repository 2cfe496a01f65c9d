"""Export of all figures of a model and a sequence, or of an experiment, with their data.

The command line writes them to a folder. The page gets them as a zip file from a separate process.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import signal
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playground.families.family import Family
from playground.training.config import RunConfig

from . import lab
from .heads import write

CURVE = ("step", "loss", "learning_rate", "gradient_norm", "exact_match", "token_accuracy")


def draw_all(
    out: Path,
    config: RunConfig,
    family: Family,
    sequence: str,
    n: int,
    *,
    lines: Sequence[Mapping[str, Any]] = (),
    scores: Mapping[str, Any] | None = None,
    history: Mapping[int, Path] | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], list[Path]]:
    """Write every figure to `out` as PNG, SVG and PDF, with its data.

    lines     the metrics up to this step
    scores    the scores of the checkpoint; computed if None
    history   the weights of earlier training steps, {step: file}
    tell      called with a message at each stage

    Returns the data by the name of the figure, and the files.

    Raises:
        UnknownSymbol, NotInspectable: for an invalid sequence.
        OSError: if the folder cannot be written.
    """
    from playground.evaluation import evaluate
    from playground.inspection.report import report
    from playground.inspection.subject import Subject

    subject = Subject.of(config, family)
    found = report(subject, sequence, n, history, tell)
    if scores is None:
        tell("evaluating on held-out sequences")
        scores = dataclasses.asdict(evaluate(family, subject.held_out(2000)))
    found["exact-match-by-length"] = scores
    if lines:
        found["loss"] = [{name: line.get(name) for name in CURVE} for line in lines]
    tell("drawing figures")
    out.mkdir(parents=True, exist_ok=True)
    return found, [path for name, data in found.items() for path in write(out, name, data)]


def work(pipe: Connection, what: dict[str, Any], sequence: str, n: int) -> None:
    """Run the export process of the page; send {"zip": base64} or {"error": message}.

    `what` identifies the model, as for the inspector.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    from playground.runs.history import kept_steps, read_lines, thinned, weights_path
    from playground.runs.inspector import Inspector
    from playground.training.manifest import read_manifest

    torch.set_num_threads(1)
    try:
        run = Path(what["run"]) if "run" in what else None
        opened = (
            Inspector().at_step(what) if run else Inspector().checkpoint(Path(what["checkpoint"]))
        )
        folder = run or Path(what["checkpoint"])
        lines = [line for line in read_lines(folder) if line["step"] <= opened.step]
        history = (
            {
                step: weights_path(folder, step)
                for step in thinned([s for s in kept_steps(folder) if s <= opened.step])
            }
            if run
            else None
        )
        scores = None if run else read_manifest(folder).scores
        with tempfile.TemporaryDirectory() as scratch:
            _, files = draw_all(
                Path(scratch),
                opened.config,
                opened.family,
                sequence,
                n,
                lines=lines,
                scores=scores,
                history=history,
            )
            answer = {"zip": packed(files)}
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    with suppress(OSError):
        pipe.send((answer,))
    pipe.close()


def work_lab(pipe: Connection, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Run the export process of an experiment; send {"zip": base64} or {"error": message}.

    `found` is the data of each figure by the name of the figure.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            answer = {
                "zip": packed(
                    [
                        path
                        for name, data in found.items()
                        for path in lab.write(Path(scratch), name, data)
                    ]
                )
            }
    except (ValueError, OSError) as error:
        answer = {"error": str(error)}
    with suppress(OSError):
        pipe.send((answer,))
    pipe.close()


def packed(files: Sequence[Path]) -> str:
    """Pack files into one zip file, encoded in base64."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.name)
    return base64.b64encode(content.getvalue()).decode()
