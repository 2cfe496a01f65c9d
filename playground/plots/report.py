"""A run's report: one HTML file that holds everything it shows, asks no server for anything and runs no script. Scores with their
intervals, curves, where the heads look, answers, settings, and the command that trains the model again. Every number was measured.

Whatever people wrote (names, rows of their own) is escaped; a Content-Security-Policy in the file forbids the rest.
"""

from __future__ import annotations

import dataclasses
import math
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from playground.evaluation import evaluate
from playground.families import FAMILIES
from playground.families.family import Family
from playground.runs.history import read_lines
from playground.runs.points import Points
from playground.runs.run import task_in_words
from playground.runs.view import View
from playground.statistics import wilson
from playground.tasks import ROWS
from playground.tasks.held_out import held_out_set
from playground.training.checkpoint import load_model
from playground.training.command import command_line
from playground.training.config import IN_PASSING, setting_of
from playground.training.manifest import CheckpointError, Manifest
from playground.training.trainer import CONFIRMING_N

STYLE = Path(__file__).with_suffix(".css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
COLUMNS = 300  # stretches of a curve, of each of which the lowest and the highest point are drawn
MOST_LAYERS, MOST_HEADS = 6, 8  # of one kind
KINDS = {
    "cross": ("Cross-attention", "Down: what is written. Across: the source that it looks at"),
    "encoder": ("Encoder self-attention", "Down and across: the source"),
    "decoder": ("Decoder self-attention", "Down: what is written. Across: what was written before"),
}
IN_ONE_ROW = {  # a family with one stack has the sequence and the answer in one row; by its kind of attention, or its name
    "encoder": "Down and across: the sequence, in whose places the answer is written (SOS: blanks where it is longer)",
    "bert": "Down and across: the sequence, then the blanks (SOS) that the answer is written into",
    "decoder": "Down and across: the sequence, then the answer so far",
}


def write_report(
    checkpoint: Path, run: Path | None = None, name: str = "", for_viewer: bool = False
) -> str:
    """The report of a checkpoint, as HTML. `run`: the folder that holds its run's metrics, where they are not beside it; `name`: what
    its owner calls it; `for_viewer`: leave out the name of the owner's dataset, with which others could use it.

    Raises:
        CheckpointError: for a checkpoint or metrics that cannot be read.
        RowsError: where the rows of its task are not kept here.
    """
    manifest, family = load_model(checkpoint)
    lines = [line for line in read_lines(run or checkpoint) if line["step"] <= manifest.step]
    scores = manifest.scores
    if scores is None:
        task = manifest.config.task
        scores = dataclasses.asdict(
            evaluate(
                family, held_out_set(task.load(), CONFIRMING_N, task.min_length, task.max_length)
            )
        )
    return html(manifest, family, scores, lines, name or checkpoint.resolve().name, for_viewer)


def html(
    manifest: Manifest,
    family: Family,
    scores: Mapping[str, Any],
    lines: Iterable[Mapping[str, Any]],
    name: str,
    for_viewer: bool = False,
) -> str:
    """The same from what was read. `scores` are those of `evaluate`, `lines` those of metrics.jsonl."""
    view = View(manifest.config.task.load(), manifest.config, torch.device("cpu"))
    snapshot, stage = view.snapshot(family.eval(), manifest.step), view.stage(family)
    parts = [
        _head(manifest, scores, name),
        _curves(Points(lines)),
        _by_length(scores),
        _samples(snapshot["samples"]),
        _attention(snapshot["attention"], stage["axes"], manifest.config.family),
        _again(manifest),
        _settings(manifest, for_viewer),
    ]
    title = escape(f"{name}: {task_in_words(manifest.config)}")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    )
    style, body = STYLE.read_text(encoding="utf-8"), "\n".join(filter(None, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}\n<style>\n{style}</style></head>\n<body><main>\n{body}\n</main></body></html>\n'


# The sections


def _head(manifest: Manifest, scores: Mapping[str, Any], name: str) -> str:
    config, n = manifest.config, scores["n"]
    low, high = wilson(round(scores["exact_match"] * n), n) if n else (0.0, 1.0)
    family = FAMILIES[config.family].title
    where = "a processor" if manifest.device == "cpu" else "a GPU"
    return f"""<header><h1>{escape(name)}</h1>
<p class="quiet">{escape(family)} of {config.model.parameter_count():,} parameters, trained from scratch on the task \
{escape(task_in_words(config))}</p>
<p>Exact match <strong>{_percent(scores["exact_match"])}</strong> of {n:,} held-out sequences (95 % interval {_percent(low)} to \
{_percent(high)}), after {_plural(manifest.step, "step")} in {manifest.seconds:,.1f} s on {where}. An answer counts when every symbol \
and its end are right, written by the model from its own earlier symbols. No held-out sequence ever trained it.</p></header>"""


def _curves(points: Points) -> str:
    if not len(points):
        return ""
    curve = points.curve(COLUMNS)
    steps, last = curve["steps"], points.last
    loss = [(step, value) for step, value in zip(steps, curve["loss"], strict=True) if value > 0]
    scored = curve["scored"]
    charts = []
    if loss:
        caption = "Loss on the training batch of each step, on a logarithmic axis"
        charts.append(
            _figure(
                _chart([loss], last, _decades([value for _, value in loss]), logarithmic=True),
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
            _figure(_chart(series, last, shares), f"{key}on held-out sequences while it trained")
        )
    return "<h2>How it learned</h2>\n" + "\n".join(charts)


def _by_length(scores: Mapping[str, Any]) -> str:
    rows = []
    for line in scores["by_length"]:
        exist = "not counted" if line["available"] is None else f"{line['available']:,}"
        if not line["n"]:
            rows.append([str(line["length"]), "0", exist, "none held out", "", ""])
            continue
        low, high = wilson(round(line["exact_match"] * line["n"]), line["n"])
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
    heads = ["length", "asked", "held out in all", "exact match", "95 % interval", "token accuracy"]
    return "<h2>How well, by length</h2>\n" + _table(
        heads, [[escape(cell) for cell in row] for row in rows], numbers=True
    )


def _samples(samples: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for sample in samples:
        right = sample["given"] == sample["answer"]
        verdict = (
            "right"
            if right
            else f'<span class="wrong">wrong</span>: <span class="symbols">{_symbols(sample["answer"])}</span>'
        )
        rows.append(
            [
                f'<span class="symbols">{_symbols(sample[each])}</span>'
                for each in ("source", "given")
            ]
            + [verdict]
        )
    return "<h2>What it answers</h2>\n" + _table(["held-out sequence", "its answer", ""], rows)


def _attention(
    attention: Mapping[str, Sequence[Sequence[Sequence[int]]]],
    axes: Mapping[str, Sequence[Sequence[str]]],
    family: str,
) -> str:
    """A map for each head; `attention` is [kind][layer][head] row by row, in thousandths."""
    sections = []
    for kind, (title, along) in KINDS.items():
        layers = attention.get(kind)
        if not layers:
            continue
        if "cross" not in axes:
            along = IN_ONE_ROW.get(family, IN_ONE_ROW[kind])
        rows, columns = axes[kind]
        maps = [
            f'<div><div class="kind">layer {i + 1}, head {j + 1}</div>{_map(weights, rows, columns)}</div>'
            for i, heads in enumerate(layers[:MOST_LAYERS])
            for j, weights in enumerate(heads[:MOST_HEADS])
        ]
        there = sum(map(len, layers))
        cut = f"; {len(maps)} of {there} heads are shown" if len(maps) < there else ""
        width = max(150, min(320, 16 * len(columns)))
        sections.append(
            f'<h3>{title}</h3>\n<p class="kind">{along}. The fuller a cell, the more attention; every row sums to one{cut}.</p>\n'
            f'<div class="heads" style="--width: {width}px">\n' + "\n".join(maps) + "\n</div>"
        )
    intro = '<p class="quiet">The trained model on one held-out sequence, given the right answer so far.</p>\n'
    return "<h2>Where it looks</h2>\n" + intro + "\n".join(sections) if sections else ""


def _again(manifest: Manifest) -> str:
    command = command_line(manifest)
    training = manifest.config.training
    versions = ", ".join(
        f"{escape(name)} {escape(value)}" for name, value in manifest.versions.items()
    )
    told = ("steps",) if command else ()  # by the command itself
    changed = [
        each
        for each in manifest.changes
        if each.step < manifest.step and each.setting not in (*IN_PASSING, *told)
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
        how = "<p>No single command trains it again: bring its rows, or use its settings below in the page.</p>"
    noted = (
        f"<p>Changed on the way, which the command does not repeat: {escape(by_hand)}.</p>"
        if by_hand
        else ""
    )
    return (
        f"<h2>Train it again</h2>\n{how}\n{noted}<p>Seed {training.seed}; {versions}. The same seed gives the same model, to the bit, "
        f"on the same kind of processor and with the same versions.</p>\n{sums}"
    )


def _settings(manifest: Manifest, for_viewer: bool) -> str:
    hidden = {"rows"} if for_viewer and manifest.config.task.task == ROWS else set()
    fields = {
        name: value for name, value in manifest.config.to_fields().items() if name not in hidden
    }
    meanings = {
        name: "what kind of model learns" if name == "family" else setting_of(name).metadata["help"]
        for name in fields
    }
    rows = [
        [f"<code>{escape(name)}</code>", escape(str(value)), escape(meanings[name])]
        for name, value in fields.items()
    ]
    return "<h2>Settings</h2>\n" + _table(["setting", "value", "meaning"], rows, kind="settings")


# What they are made of


def _chart(
    series: Sequence[Sequence[tuple[float, float]]],
    last: int,
    ticks: Sequence[tuple[float, str]],
    logarithmic: bool = False,
) -> str:
    """Curves over the steps, the first one plain and the second dashed; `ticks` are values with what stands beside them."""
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
            f'<polyline class="{style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'
        )
    return "".join(drawn) + "</svg>"


def _decades(values: Sequence[float]) -> list[tuple[float, str]]:
    """Powers of ten around some positive values, as ticks of a logarithmic axis."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    every = max(1, math.ceil((high - low) / 6))
    powers = [*range(low, high, every), high]
    return [
        (10.0**power, f"{10.0**power:g}" if -4 < power < 5 else f"1e{power}") for power in powers
    ]


def _map(weights: Sequence[int], rows: Sequence[str], columns: Sequence[str]) -> str:
    """A head's weights as cells, with the symbols along both sides where they have room."""
    room = 7 * max((len(name) for name in (*rows, *columns)), default=1) + 8
    cell = 16
    width, height = room + cell * len(columns) + 1, room + cell * len(rows) + 1
    drawn = [f'<svg viewBox="0 0 {width} {height}" role="img">']
    for q, name in enumerate(rows):
        drawn.append(
            f'<text class="symbol" x="{room - 5}" y="{room + cell * q + 12}" text-anchor="end">{escape(name)}</text>'
        )
    for m, name in enumerate(columns):
        x = room + cell * m + 8
        turned = (
            f' transform="rotate(-90 {x} {room - 6})" text-anchor="start"'
            if len(name) > 1
            else ' text-anchor="middle"'
        )
        drawn.append(
            f'<text class="symbol" x="{x + (4 if len(name) > 1 else 0)}" y="{room - 6}"{turned}>{escape(name)}</text>'
        )
    for at, weight in enumerate(weights):
        if weight >= 5:  # half a percent: less cannot be seen
            q, m = divmod(at, len(columns))
            place = f'x="{room + cell * m + 0.5}" y="{room + cell * q + 0.5}"'
            drawn.append(
                f'<rect class="cell" {place} width="15" height="15" fill-opacity="{weight / 1000:g}"/>'
            )
    drawn.append(
        f'<rect class="frame" x="{room}" y="{room}" width="{cell * len(columns)}" height="{cell * len(rows)}"/>'
    )
    return "".join(drawn) + "</svg>"


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{caption}</figcaption></figure>"


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False, kind: str = ""
) -> str:
    """A table of cells that are HTML already."""
    style = ' class="number"' if numbers else ""
    head = "".join(f"<th{style}>{head}</th>" for head in heads)
    body = "\n".join(
        "<tr>" + "".join(f"<td{style}>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f'<div class="wide"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _symbols(names: Sequence[str]) -> str:
    return escape(" ".join(names)) or "nothing"


def _percent(share: float) -> str:
    """With one decimal; only all is 100 % and only none is 0 %."""
    text = f"{100 * share:.1f}"
    if text == "100.0":
        return "100 %" if share > 1 - 1e-9 else "over 99.9 %"
    if text == "0.0":
        return "0 %" if share == 0 else "under 0.1 %"
    return f"{text} %"


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def work(pipe: Connection, checkpoint: str, run: str, name: str, for_viewer: bool = False) -> None:
    """The entry of the page's process: answers with {"html": text} or {"error": sentence}."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        answer = {
            "html": write_report(Path(checkpoint), Path(run) if run else None, name, for_viewer)
        }
    except (CheckpointError, ValueError, OSError) as error:
        answer = {"error": str(error)}
    with suppress(OSError):
        pipe.send((answer,))
    pipe.close()
