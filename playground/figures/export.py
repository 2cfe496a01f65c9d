"""Export of all figures of a model and a sequence, or of an experiment, with their data.

The command line writes them to a folder. The page gets them as a zip file from a separate process.
"""

import base64
import dataclasses
import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from playground.architectures.base import Seq2SeqModel
from playground.training.config import RunConfig

from . import experiments
from .catalog import write

METRIC_COLUMNS = (
    "step",
    "loss",
    "learning_rate",
    "grad_norm",
    "exact_match",
    "token_accuracy",
    "held_out_loss",
)


def export_figures(
    out_folder: Path,
    config: RunConfig,
    model: Seq2SeqModel,
    sequence: str,
    n: int,
    *,
    lines: Sequence[Mapping[str, Any]] = (),
    scores: Mapping[str, Any] | None = None,
    history: Mapping[int, Path] | None = None,
    report_progress: Callable[[str], None] = lambda _: None,
) -> tuple[dict[str, Any], list[Path]]:
    """Write every figure to `out_folder` as PNG, SVG and PDF, with its data.

    lines     the metrics up to this step
    scores    the scores of the checkpoint; computed if None
    history   the weights of earlier training steps, {step: file}
    report_progress      called with a message at each stage

    Returns the data by the name of the figure, and the files.

    Raises:
        UnknownSymbolError, InspectionError: for an invalid sequence.
        OSError: if the folder cannot be written.
    """
    from playground.evaluation import evaluate
    from playground.inspection.inspected_model import InspectedModel
    from playground.inspection.views.export import build_report

    subject = InspectedModel.from_model(config, model)
    figures = build_report(subject, sequence, n, history, report_progress)
    if scores is None:
        report_progress("evaluating on held-out sequences")
        scores = dataclasses.asdict(evaluate(model, subject.held_out(2000)))
    figures["exact-match-by-length"] = scores
    if lines:
        figures["loss"] = [{name: line.get(name) for name in METRIC_COLUMNS} for line in lines]
    report_progress("drawing figures")
    out_folder.mkdir(parents=True, exist_ok=True)
    return figures, [
        path for name, data in figures.items() for path in write(out_folder, name, data)
    ]


def export_model(model_ref: dict[str, Any], sequence: str, n: int) -> dict[str, str]:
    """Return {"zip": base64}: the call of the page, in a process of its own.

    `model_ref` identifies the model, as for the inspector.
    """
    import torch

    from playground.checkpoints.manifest import read_manifest
    from playground.runs.inspector_process import Inspector
    from playground.runs.weight_history import read_lines, subsample, weight_steps, weights_path

    torch.set_num_threads(1)
    run = Path(model_ref["run"]) if "run" in model_ref else None
    opened = (
        Inspector().load_at_step(model_ref)
        if run
        else Inspector().checkpoint(Path(model_ref["checkpoint"]))
    )
    folder = run or Path(model_ref["checkpoint"])
    lines = [line for line in read_lines(folder) if line["step"] <= opened.step]
    history = (
        {
            step: weights_path(folder, step)
            for step in subsample([s for s in weight_steps(folder) if s <= opened.step])
        }
        if run
        else None
    )
    scores = None if run else read_manifest(folder).scores
    with tempfile.TemporaryDirectory() as scratch:
        _, files = export_figures(
            Path(scratch),
            opened.config,
            opened.model,
            sequence,
            n,
            lines=lines,
            scores=scores,
            history=history,
        )
        return {"zip": zip_base64(files)}


def export_experiment(results: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return {"zip": base64} of an experiment: the call of the page, in a process of its own.

    `results` is the data of each figure by the name of the figure.
    """
    with tempfile.TemporaryDirectory() as scratch:
        files = [
            path
            for name, data in results.items()
            for path in experiments.write(Path(scratch), name, data)
        ]
        return {"zip": zip_base64(files)}


def zip_base64(files: Sequence[Path]) -> str:
    """Pack files into one zip file, encoded in base64."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.name)
    return base64.b64encode(content.getvalue()).decode()
