"""The report of a run: one self-contained HTML file without requests and scripts.

Every number is measured, and user input is escaped. The text is in templates/report.html.j2; this
file collects its facts.
"""

import base64
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import load_model
from playground.checkpoints.manifest import Manifest, training_command
from playground.checkpoints.metrics import read_metrics
from playground.common.format import format_count, format_percent
from playground.common.stats import exact_match_interval
from playground.evaluation import evaluate
from playground.figures.figures import draw_head, draw_heads, exact_match_by_length, training_curve
from playground.figures.style import ACCENT, FOREGROUND, GRID, MUTED, SECONDARY, render
from playground.runs.snapshot import SnapshotBuilder
from playground.runs.summary import task_label
from playground.tasks.held_out import build_held_out_set
from playground.tasks.vocabulary import format_token
from playground.training.run_config import field_named
from playground.training.setting_changes import RESULT_NEUTRAL_SETTINGS
from playground.training.trainer import FINAL_EVAL_SIZE

from .interactive_page import STATIC, TEMPLATES, template_environment

STYLES = (
    STATIC / "shared" / "theme.css",
    STATIC / "shared" / "document.css",
    TEMPLATES / "report.css",
)
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
COVER_IN = 2.9  # the heat map of the first screen
MAX_LAYERS, MAX_HEADS = 6, 8  # of one type of attention
ATTENTION_KINDS = {
    "cross": (
        "Cross-attention",
        "Rows: the target token that each query predicts. Columns: source tokens (keys)",
    ),
    "encoder": ("Encoder self-attention", "Rows and columns: source tokens"),
    "decoder": (
        "Decoder self-attention",
        "Rows: decoder input (queries). Columns: decoder input (keys)",
    ),
}
# An architecture with one stack has source and target in one sequence. The keys are types of
# attention or names of architectures.
IN_ONE_SEQUENCE = {
    "encoder": "Rows and columns: the source, whose positions predict the target (SOS: positions "
    "beyond the source)",
    "bert": "Rows and columns: the source, then the masked positions (SOS) that predict the target",
    "decoder": "Rows and columns: the source, then the target so far",
}

MAX_SVG_BYTES = 200_000  # a larger figure is embedded as PNG
# The variables of shared/theme.css, so that a figure follows the theme of the reader.
THEME = {
    FOREGROUND: "var(--pg-text)",
    MUTED: "var(--pg-quiet-text)",
    GRID: "var(--pg-border)",
    ACCENT: "var(--pg-accent)",
    SECONDARY: "var(--pg-cross)",
}


def render_report(checkpoint: str, run: str, name: str, file_name: str) -> dict[str, bytes]:
    """Return {"json": body of the response}: the call of the app, in a process of its own."""
    torch.set_num_threads(1)
    text = write_report(Path(checkpoint), Path(run) if run else None, name)
    return {"json": json.dumps({"html": text, "name": file_name}).encode()}


def write_report(checkpoint: Path, run: Path | None = None, name: str = "") -> str:
    """Return the report of a checkpoint as HTML, with the metrics in the folder `run`, if any.

    Raises CheckpointError for unreadable files, DatasetError if its dataset is not stored here.
    """
    manifest, model = load_model(checkpoint)
    lines = list(read_metrics(run or checkpoint, manifest.step))
    scores = manifest.scores
    if scores is None:
        task = manifest.config.task
        lengths = task.min_length, task.max_length
        held_out = build_held_out_set(task.load(), FINAL_EVAL_SIZE, *lengths)
        scores = dataclasses.asdict(evaluate(model, held_out))
    return render_html(manifest, model, scores, lines, name or checkpoint.resolve().name)


def render_html(
    manifest: Manifest,
    model: Seq2SeqModel,
    scores: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    name: str,
) -> str:
    """Return the report as HTML, with `scores` of `evaluate` and `lines` of metrics.jsonl."""
    config = manifest.config
    builder = SnapshotBuilder(config)
    snapshot, axes = builder.snapshot(model.eval(), manifest.step), builder.describe(model)["axes"]
    attention = _attention(snapshot["attention"], axes, config.architecture)
    facts = {
        "content_security_policy": CONTENT_SECURITY_POLICY,
        "style": "".join(path.read_text(encoding="utf-8") for path in STYLES),
        "name": name,
        "task": task_label(config),
        "architecture": ARCHITECTURES[config.architecture].title,
        "n_parameters": parameter_count(config.model),
        "manifest": manifest,
        "scores": scores,
        "interval": exact_match_interval(scores) or (0.0, 1.0),
        "lengths": [
            {**line, "interval": exact_match_interval(line)} for line in scores["by_length"]
        ],
        "lengths_figure": _lengths_figure(scores),
        "curves": _curves(lines),
        "samples": snapshot["samples"],
        "attention": attention,
        "cover": _cover(attention),
        **_training_facts(manifest),
    }
    environment = template_environment()
    environment.filters |= {
        "percent": format_percent,
        "count": format_count,
        "thousands": lambda n: f"{n:,}",
        "tokens": lambda names: " ".join(map(format_token, names)) or "nothing",
    }
    return environment.get_template("report.html.j2").render(facts)


# Figures


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """Return a figure as an element of HTML.

    `name` is a prefix of its ids, unique in the document. `description` is for screen readers.
    """
    figure.set_facecolor("none")
    for axes in figure.findobj(Axes):
        if not axes.images:  # a heat map is white in every theme
            axes.set_facecolor("none")
    svg = render(figure, "svg").decode()
    label = f'role="img" aria-label="{escape(description)}"'
    if len(svg) > MAX_SVG_BYTES:
        figure.set_facecolor("white")
        data = base64.b64encode(render(figure, "png")).decode()
        return Markup(f'<img src="data:image/png;base64,{data}" alt="{escape(description)}">')
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href=", "href=")
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r' height="[^"]*"', "", svg, count=1)
    for color, variable in THEME.items():
        svg = svg.replace(color, variable)
    return Markup(svg.replace("<svg", f"<svg {label}", 1))


def _curves(lines: Sequence[Mapping[str, Any]]) -> Markup | None:
    if not lines:
        return None
    return inline_svg(training_curve(lines), "curves", "Loss and accuracy over the training steps")


def _lengths_figure(scores: Mapping[str, Any]) -> Markup | None:
    if len(scores["by_length"]) < 2:
        return None
    return inline_svg(exact_match_by_length(scores), "lengths", "Exact match by length")


def _attention(
    attention: Mapping[str, Sequence[Sequence[Sequence[int]]]],
    axes: Mapping[str, Sequence[Sequence[str]]],
    architecture: str,
) -> list[dict[str, Any]]:
    """Return facts and figure of each type; `attention` is [kind][layer][head], in thousandths."""
    sections = []
    for kind, (title, labels) in ATTENTION_KINDS.items():
        if not attention.get(kind):
            continue
        rows, columns = axes[kind]
        weights_LHQM = np.array(attention[kind]).reshape(
            len(attention[kind]), -1, len(rows), len(columns)
        )
        weights_LHQM = weights_LHQM[:MAX_LAYERS, :MAX_HEADS] / 1000
        if kind == "decoder":
            causal = np.tri(len(rows), len(columns), dtype=bool)
            weights_LHQM = np.where(causal, weights_LHQM, np.nan)
        figure = draw_heads(weights_LHQM, rows, columns)
        if "cross" not in axes:
            labels = IN_ONE_SEQUENCE.get(architecture, IN_ONE_SEQUENCE[kind])
        sections.append(
            {
                "kind": kind,
                "title": title,
                "axes": labels,
                "weights": weights_LHQM,
                "labels": (rows, columns),
                "n_drawn": weights_LHQM.shape[0] * weights_LHQM.shape[1],
                "n_heads": sum(map(len, attention[kind])),
                "svg": inline_svg(figure, kind, f"Heat maps of the {title.lower()} of every head"),
            }
        )
    return sections


def _cover(attention: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the figure of the first screen: the head with the most concentrated weights."""
    if not attention:
        return None
    section = attention[0]
    concentration_LH = np.nanmax(section["weights"], axis=-1).mean(-1)
    layer, head = np.unravel_index(int(concentration_LH.argmax()), concentration_LH.shape)
    rows, columns = section["labels"]
    figure = draw_head(section["weights"][layer, head], rows, columns, panel=COVER_IN)
    title = f"{section['title']}, layer {layer + 1}, head {head + 1}"
    return {
        "svg": inline_svg(figure, "cover", f"Heat map of one head: {title}"),
        "caption": f"{title}: the head with the most concentrated attention. {section['axes']}.",
    }


# Facts


def _training_facts(manifest: Manifest) -> dict[str, Any]:
    command = training_command(manifest)
    in_command = ("max_steps",) if command else ()
    return {
        "command": command,
        "changes": [
            change
            for change in manifest.changes
            if change.step < manifest.step
            and change.setting not in (*RESULT_NEUTRAL_SETTINGS, *in_command)
        ],
        "settings": [
            (name, value, "" if name == "architecture" else field_named(name).metadata["help"])
            for name, value in manifest.config.to_flat().items()
        ],
    }
