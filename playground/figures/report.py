"""The report of a run: one self-contained HTML file without requests and scripts.

It has scores with intervals, curves, attention weights, sample outputs, settings, and the command
that repeats the training. Every number is measured.

User input (names, datasets) is escaped. A Content-Security-Policy in the file blocks everything
else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch

from playground.architectures import ARCHITECTURES
from playground.architectures.base import Seq2SeqModel
from playground.checkpoints.checkpoint import load_model
from playground.checkpoints.manifest import Manifest
from playground.checkpoints.train_command import training_command
from playground.common.stats import wilson_interval
from playground.evaluation import evaluate
from playground.runs.metric_series import MetricSeries
from playground.runs.snapshot import SnapshotBuilder
from playground.runs.summary import task_label
from playground.runs.weight_history import read_lines
from playground.tasks import LOOKUP
from playground.tasks.held_out import build_held_out_set
from playground.training.config import field_named
from playground.training.setting_changes import RESULT_NEUTRAL_SETTINGS
from playground.training.trainer import FINAL_EVAL_SIZE

STYLE = Path(__file__).with_suffix(".css")
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
CHART_POINTS = 300  # bins of a curve; the minimum and the maximum of each bin are drawn
MAX_LAYERS, MAX_HEADS = 6, 8  # of one type of attention
ATTENTION_KINDS = {
    "cross": (
        "Cross-attention",
        "Rows: generated tokens (queries). Columns: source tokens (keys)",
    ),
    "encoder": ("Encoder self-attention", "Rows and columns: source tokens"),
    "decoder": (
        "Decoder self-attention",
        "Rows: generated tokens (queries). Columns: decoder input (keys)",
    ),
}
# An architecture with one stack has source and target in one sequence. The keys are types of
# attention or names of architectures.
IN_ONE_ROW = {
    "encoder": "Rows and columns: the source, whose positions predict the target (SOS: positions "
    "beyond the source)",
    "bert": "Rows and columns: the source, then the masked positions (SOS) that predict the target",
    "decoder": "Rows and columns: the source, then the target so far",
}


def write_report(
    checkpoint: Path, run: Path | None = None, name: str = "", for_viewer: bool = False
) -> str:
    """Return the report of a checkpoint as HTML.

    run          the folder with the metrics of its run, if it is not `checkpoint`
    name         the name that the owner gave it
    for_viewer   omit the id of the owner's dataset, with which others could use the dataset

    Raises:
        CheckpointError: for a checkpoint or metrics that cannot be read.
        DatasetError: if the dataset of its task is not stored here.
    """
    manifest, model = load_model(checkpoint)
    lines = [line for line in read_lines(run or checkpoint) if line["step"] <= manifest.step]
    scores = manifest.scores
    if scores is None:
        task = manifest.config.task
        scores = dataclasses.asdict(
            evaluate(
                model,
                build_held_out_set(task.load(), FINAL_EVAL_SIZE, task.min_length, task.max_length),
            )
        )
    return render_html(
        manifest, model, scores, lines, name or checkpoint.resolve().name, for_viewer
    )


def render_html(
    manifest: Manifest,
    model: Seq2SeqModel,
    scores: Mapping[str, Any],
    lines: Iterable[Mapping[str, Any]],
    name: str,
    for_viewer: bool = False,
) -> str:
    """Return the report as HTML, from loaded data.

    `scores` are those of `evaluate`, `lines` those of metrics.jsonl.
    """
    view = SnapshotBuilder(manifest.config.task.load(), manifest.config, torch.device("cpu"))
    snapshot, stage = view.snapshot(model.eval(), manifest.step), view.describe(model)
    parts = [
        _head(manifest, scores, name),
        _curves(MetricSeries(lines)),
        _by_length(scores),
        _samples(snapshot["samples"]),
        _attention(snapshot["attention"], stage["axes"], manifest.config.architecture),
        _reproduce_command(manifest),
        _settings(manifest, for_viewer),
    ]
    title = escape(f"{name}: {task_label(manifest.config)}")
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>"
    )
    style, body = STYLE.read_text(encoding="utf-8"), "\n".join(filter(None, parts))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}\n<style>\n{style}</style></head>\n'
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


# The sections


def _head(manifest: Manifest, scores: Mapping[str, Any], name: str) -> str:
    config, n = manifest.config, scores["n"]
    low, high = wilson_interval(round(scores["exact_match"] * n), n) if n else (0.0, 1.0)
    family = ARCHITECTURES[config.architecture].title
    where = "a CPU" if manifest.device == "cpu" else "a GPU"
    return f"""<header><h1>{escape(name)}</h1>
<p class="quiet">{escape(family)} with {config.model.parameter_count():,} parameters, trained from \
scratch on the task {escape(task_label(config))}</p>
<p>Exact match <strong>{_percent(scores["exact_match"])}</strong> of {n:,} held-out sequences \
(95 % interval {_percent(low)} to {_percent(high)}), after {_plural(manifest.step, "step")} in \
{manifest.seconds:,.1f} s on {where}. An output is correct if all its tokens, with EOS, equal the \
target in free-running generation. Held-out sequences are never used for training.</p></header>"""


def _curves(points: MetricSeries) -> str:
    if not len(points):
        return ""
    curve = points.downsampled(CHART_POINTS)
    steps, last = curve["steps"], points.last
    loss = [(step, value) for step, value in zip(steps, curve["loss"], strict=True) if value > 0]
    scored = curve["evaluations"]
    charts = []
    if loss:
        caption = "Loss on the training batch of each step, on a logarithmic axis"
        charts.append(
            _figure(
                _line_chart_svg(
                    [loss], last, _log_ticks([value for _, value in loss]), logarithmic=True
                ),
                caption,
            )
        )
    if scored:
        series = [
            [(step, exact) for step, exact, _, _ in scored],
            [(step, tokens) for step, _, tokens, _ in scored],
        ]
        key = '<i class="key"></i>exact match<i class="key second"></i>token accuracy, '
        shares = [(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")]
        charts.append(
            _figure(
                _line_chart_svg(series, last, shares), f"{key}on held-out sequences during training"
            )
        )
    return "<h2>Training curves</h2>\n" + "\n".join(charts)


def _by_length(scores: Mapping[str, Any]) -> str:
    rows = []
    for line in scores["by_length"]:
        exist = "not counted" if line["available"] is None else f"{line['available']:,}"
        if not line["n"]:
            rows.append([str(line["length"]), "0", exist, "none held out", "", ""])
            continue
        low, high = wilson_interval(round(line["exact_match"] * line["n"]), line["n"])
        tokens = "" if line["token_accuracy"] is None else _percent(line["token_accuracy"])
        interval = f"{_percent(low)} to {_percent(high)}"
        rows.append(
            [
                str(line["length"]),
                f"{line['n']:,}",
                exist,
                _percent(line["exact_match"]),
                interval,
                tokens,
            ]
        )
    heads = [
        "length",
        "evaluated",
        "held out in total",
        "exact match",
        "95 % interval",
        "token accuracy",
    ]
    return "<h2>Accuracy by length</h2>\n" + _table(
        heads, [[escape(cell) for cell in row] for row in rows], numbers=True
    )


def _samples(samples: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for sample in samples:
        right = sample["prediction"] == sample["target"]
        verdict = (
            "correct"
            if right
            else '<span class="wrong">wrong</span>, target: '
            f'<span class="symbols">{_format_symbols(sample["target"])}</span>'
        )
        rows.append(
            [
                f'<span class="symbols">{_format_symbols(sample[each])}</span>'
                for each in ("source", "prediction")
            ]
            + [verdict]
        )
    return "<h2>Sample outputs</h2>\n" + _table(["held-out sequence", "output", ""], rows)


def _attention(
    attention: Mapping[str, Sequence[Sequence[Sequence[int]]]],
    axes: Mapping[str, Sequence[Sequence[str]]],
    family: str,
) -> str:
    """Return a heatmap for each head.

    `attention` is [kind][layer][head], each flattened by rows, in thousandths.
    """
    sections = []
    for kind, (title, along) in ATTENTION_KINDS.items():
        layers = attention.get(kind)
        if not layers:
            continue
        if "cross" not in axes:
            along = IN_ONE_ROW.get(family, IN_ONE_ROW[kind])
        rows, columns = axes[kind]
        maps = [
            f'<div><div class="kind">layer {i + 1}, head {j + 1}</div>'
            f"{_heatmap_svg(weights, rows, columns)}</div>"
            for i, heads in enumerate(layers[:MAX_LAYERS])
            for j, weights in enumerate(heads[:MAX_HEADS])
        ]
        there = sum(map(len, layers))
        cut = f"; {len(maps)} of {there} heads are displayed" if len(maps) < there else ""
        width = max(150, min(320, 16 * len(columns)))
        sections.append(
            f'<h3>{title}</h3>\n<p class="kind">{along}. Stronger color: more attention; '
            f"every row sums to 1{cut}.</p>\n"
            f'<div class="heads" style="--width: {width}px">\n' + "\n".join(maps) + "\n</div>"
        )
    intro = '<p class="quiet">The trained model on one held-out sequence, teacher-forced.</p>\n'
    return "<h2>Attention</h2>\n" + intro + "\n".join(sections) if sections else ""


def _reproduce_command(manifest: Manifest) -> str:
    command = training_command(manifest)
    training = manifest.config.training
    versions = ", ".join(
        f"{escape(name)} {escape(value)}" for name, value in manifest.versions.items()
    )
    lines = ("max_steps",) if command else ()  # the command itself includes these
    changed = [
        each
        for each in manifest.changes
        if each.step < manifest.step and each.setting not in (*RESULT_NEUTRAL_SETTINGS, *lines)
    ]
    by_hand = "; ".join(
        f"from step {each.step + 1:,} on, {each.setting} was {each.value:g}" for each in changed
    )
    sums = "".join(
        f"<p>SHA-256 of {escape(name)}: <code>{escape(value)}</code></p>"
        for name, value in sorted(manifest.sha256.items())
    )
    if command:
        how = f"<pre>{escape(command)}</pre>"
    else:
        how = (
            "<p>No single command repeats this training. Add its dataset, or use the settings "
            "below on the page.</p>"
        )
    noted = (
        f"<p>Changes during the run that the command does not repeat: {escape(by_hand)}.</p>"
        if by_hand
        else ""
    )
    return (
        f"<h2>Repeat the training</h2>\n{how}\n{noted}<p>Seed {training.seed}; {versions}. "
        "The same seed gives bit-identical weights on the same type of processor with the same "
        f"versions.</p>\n{sums}"
    )


def _settings(manifest: Manifest, for_viewer: bool) -> str:
    hidden = {"dataset_sha256"} if for_viewer and manifest.config.task.task == LOOKUP else set()
    fields = {
        name: value for name, value in manifest.config.to_flat().items() if name not in hidden
    }
    meanings = {
        name: "Architecture of the model."
        if name == "architecture"
        else field_named(name).metadata["help"]
        for name in fields
    }
    rows = [
        [f"<code>{escape(name)}</code>", escape(str(value)), escape(meanings[name])]
        for name, value in fields.items()
    ]
    return "<h2>Settings</h2>\n" + _table(["setting", "value", "meaning"], rows, kind="settings")


# Elements


def _line_chart_svg(
    series: Sequence[Sequence[tuple[float, float]]],
    last: int,
    ticks: Sequence[tuple[float, str]],
    logarithmic: bool = False,
) -> str:
    """Return a chart of curves over the steps, the first solid and the second dashed.

    `ticks` are values with their labels.
    """
    width, height, left, right, above, below = 800, 220, 56, 12, 10, 30
    scale = math.log10 if logarithmic else float
    low, high = scale(ticks[0][0]), scale(ticks[-1][0])

    def place(step: float, value: float) -> tuple[float, float]:
        up = (scale(value) - low) / (high - low)
        return left + (width - left - right) * step / max(last, 1), above + (
            height - above - below
        ) * (1 - min(max(up, 0.0), 1.0))

    drawn = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for value, label in ticks:
        y = place(0, value)[1]
        drawn.append(
            f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        drawn.append(
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        )
    for step in sorted({0, last // 2, last}):
        x, anchor = place(step, ticks[0][0])[0], "end" if step == last and last else "middle"
        label = f"step {step:,}" if step == last else f"{step:,}"
        drawn.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="{anchor}">{label}</text>')
    for points, style in zip(series, ("first", "second"), strict=False):
        places = [place(*point) for point in points]
        if len(places) == 1:
            drawn.append(
                f'<circle class="dot" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3"/>'
            )
        drawn.append(
            f'<polyline class="{style}" '
            f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
        )
    return "".join(drawn) + "</svg>"


def _log_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return powers of ten around positive values, as ticks of a logarithmic axis."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    every = max(1, math.ceil((high - low) / 6))
    powers = [*range(low, high, every), high]
    return [
        (10.0**power, f"{10.0**power:g}" if -4 < power < 5 else f"1e{power}") for power in powers
    ]


def _heatmap_svg(weights: Sequence[int], rows: Sequence[str], columns: Sequence[str]) -> str:
    """Return the weights of a head as a heatmap with row and column labels."""
    label_width = 7 * max((len(name) for name in (*rows, *columns)), default=1) + 8
    cell = 16
    width, height = label_width + cell * len(columns) + 1, label_width + cell * len(rows) + 1
    drawn = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for q, name in enumerate(rows):
        drawn.append(
            f'<text class="symbol" x="{label_width - 5}" y="{label_width + cell * q + 12}" '
            'text-anchor="end">'
            f"{escape(name)}</text>"
        )
    for m, name in enumerate(columns):
        x = label_width + cell * m + 8
        turned = (
            f' transform="rotate(-90 {x} {label_width - 6})" text-anchor="start"'
            if len(name) > 1
            else ' text-anchor="middle"'
        )
        drawn.append(
            f'<text class="symbol" x="{x + (4 if len(name) > 1 else 0)}" '
            f'y="{label_width - 6}"{turned}>'
            f"{escape(name)}</text>"
        )
    for at, weight in enumerate(weights):
        if weight >= 5:  # half a percent; smaller weights are not visible
            q, m = divmod(at, len(columns))
            place = f'x="{label_width + cell * m + 0.5}" y="{label_width + cell * q + 0.5}"'
            drawn.append(
                f'<rect class="cell" {place} width="15" height="15" '
                f'fill-opacity="{weight / 1000:g}"/>'
            )
    drawn.append(
        f'<rect class="frame" x="{label_width}" y="{label_width}" width="{cell * len(columns)}" '
        f'height="{cell * len(rows)}"/>'
    )
    return "".join(drawn) + "</svg>"


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False, kind: str = ""
) -> str:
    """Return a table; its cells are HTML."""
    style = ' class="number"' if numbers else ""
    head = "".join(f"<th{style}>{head}</th>" for head in heads)
    body = "\n".join(
        "<tr>" + "".join(f"<td{style}>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n'
        f"{body}\n</tbody></table></div>"
    )


def _format_symbols(names: Sequence[str]) -> str:
    return escape(" ".join(names)) or "nothing"


def _percent(share: float) -> str:
    """Format a fraction with one decimal; only 1 is 100 % and only 0 is 0 %."""
    text = f"{100 * share:.1f}"
    if text == "100.0":
        return "100 %" if share > 1 - 1e-9 else "over 99.9 %"
    if text == "0.0":
        return "0 %" if share == 0 else "under 0.1 %"
    return f"{text} %"


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def render_report(checkpoint: str, run: str, name: str, for_viewer: bool) -> dict[str, str]:
    """Return {"html": text}: the call of the page, in a process of its own."""
    torch.set_num_threads(1)
    return {"html": write_report(Path(checkpoint), Path(run) if run else None, name, for_viewer)}
