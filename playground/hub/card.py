"""The card of a published model: what it is, what it answers, how well, how it came to be. Every number on it was measured.

`write_card` puts README.md, its pictures and evaluation.json beside the packaged model; the same checkpoint gives the same bytes.
`read_scores` finds the scores in a card again, in a foreign one too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from huggingface_hub import EvalResult, ModelCardData
from torch import Tensor

from playground.evaluation import evaluate
from playground.families.family import Family
from playground.plots.figures import cross_attention, save, training_curve
from playground.statistics import wilson
from playground.tasks import EOS, ROWS
from playground.tasks.held_out import HELD_OUT_SHARE, HeldOut, held_out_set
from playground.tasks.rows import RowsError, origin_of
from playground.tasks.task import Task
from playground.training.checkpoint import iter_metrics, load_model
from playground.training.command import command_line
from playground.training.config import IN_PASSING, RunConfig, TaskConfig, setting_of, settings_at
from playground.training.manifest import Manifest, is_number
from playground.training.trainer import CONFIRMING_N

from .client import HubError, check_repo, check_revision
from .forms import CAUSAL, MASKED, Form, code_lines, form_of
from .names import LICENSES, TAG

OTHER_N = 200  # held-out sequences asked of each length that the model was not trained on
MOST_LAYERS, MOST_HEADS = 6, 8  # shown in the picture
PROBE_LENGTH = 10
LONG_TABLE = 20  # lines above which a table is folded
LARGEST_FRONT_MATTER = 100_000  # characters
IMAGINARY = 1e15  # no measured number is larger; a checkpoint from elsewhere may hold any


@dataclass(frozen=True)
class Example:
    """A held-out sequence, the right answer, and what the model answered; `ended`: it wrote EOS itself."""

    source: str
    answer: str
    given: str
    ended: bool


def write_card(
    package: Path,
    checkpoint: Path,
    *,
    repo: str,
    dataset: str | None = None,
    notes: str = "",
    revision: str = "main",
    license: str = "",
) -> None:
    """Write the card of a checkpoint into the folder of its package.

    `dataset` is the repository of its training set, `notes` what its owner says of it, shown as plain text. `revision` is the branch
    that the card is for. Without a `license`, that of `default_license` stands.

    Raises:
        HubError: for what is no name of a repository.
        CheckpointError: when the checkpoint cannot be read.
        RowsError: for a checkpoint without scores whose task is made of rows that are not here.
        OSError: as the system reports it.
    """
    for name in (repo, dataset) if dataset else (repo,):
        check_repo(name)
    check_revision(revision)
    if license and license not in LICENSES:
        raise HubError(
            f"the licence is {license[:60]!r}, which the Hub does not know; give one such as mit, apache-2.0 or cc-by-4.0"
        )
    manifest, family = load_model(checkpoint)
    form = form_of(manifest.config.family)
    license = license or default_license(manifest.config.task)
    task = manifest.config.task.load()
    low, high = manifest.config.task.min_length, manifest.config.task.max_length
    try:
        held_out = held_out_set(task, CONFIRMING_N, low, high)
        scores = manifest.scores or dataclasses.asdict(evaluate(family, held_out))
    except (
        RowsError
    ):  # the rows of its task are elsewhere: the card tells what was measured where they were
        if manifest.scores is None:
            raise
        held_out, scores = None, manifest.scores
    others = other_lengths(family, task, manifest.config) if held_out else []
    examples = worked_examples(family, task, held_out, low, high) if held_out else []
    lines = [
        line
        for line in iter_metrics(checkpoint)
        if line["step"] <= manifest.step and _is_measured(line)
    ]
    pictures = []
    if lines:
        save(training_curve(lines), package / "training.png")
        pictures.append(f"![{_training_alt(lines)}](training.png)")
    length, picture = max(low, min(high, PROBE_LENGTH)), package / "cross-attention.png"
    shown = attention_picture(family, task, held_out, length, picture) if held_out else ""
    if shown:
        pictures.append(
            f"Where each head of the decoder looks in the source, given the right answer so far:\n\n![{shown}](cross-attention.png)"
        )
    parts = [
        f"# {_escaped(repo.split('/')[1])}",
        _what_it_is(manifest, task, scores),
        _in_notes(notes),
        _in_examples(examples, task),
        _how_to_load(repo, revision, form, code_lines(package), examples, task),
        _how_well(scores, others, manifest),
        _in_pictures(pictures),
        _what_it_learned_from(manifest, task, dataset),
        _how_it_was_made(manifest),
        _limits(manifest, task, scores, others),
        _licence(license, manifest.config.task, form),
    ]
    front = _metadata(repo, dataset, license, manifest, task, scores).to_yaml()
    body = "\n\n".join(part for part in parts if part)
    (package / "README.md").write_bytes(f"---\n{front}\n---\n\n{body}\n".encode())
    (package / "evaluation.json").write_bytes(json.dumps(scores, indent=2).encode() + b"\n")


def default_license(task: TaskConfig) -> str:
    """Return the licence of a model whose author names none.

    Sequences that the playground makes are nobody's. Rows have that of the dataset on the Hub that they are from, or none.
    """
    return origin_of(task.rows).get("license", "") if task.task == ROWS else "mit"


def read_scores(card: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """The scores that a card claims: `exact_match`, `n`, and `token_accuracy` (None where it says none).

    `card` is a README's text or its metadata. None for one without an exact match as a share of so many sequences, as cards from
    elsewhere are; nothing that stands in a card raises.
    """
    try:
        content = _front_matter(card) if isinstance(card, str) else card
        found: dict[str, Any] = {}
        for model in content.get("model-index") or []:
            for metric in [metric for result in model["results"] for metric in result["metrics"]]:
                value, n = metric.get("value"), (metric.get("args") or {}).get("n")
                if is_number(value) and 0 <= value <= 1 and type(n) is int and 0 < n <= 10**9:
                    found.setdefault(metric["type"], (float(value), n))
    except Exception:  # written by anybody: YAML's constructors and this walk stumble in more ways than can be listed
        return None
    if "exact_match" not in found:
        return None
    exact_match, n = found["exact_match"]
    return {
        "exact_match": exact_match,
        "n": n,
        "token_accuracy": found.get("token_accuracy", (None, 0))[0],
    }


# What is measured for the card


def worked_examples(
    family: Family, task: Task, held_out: HeldOut, low: int, high: int
) -> list[Example]:
    """The model's answers to the first held-out sequences of three lengths, a third of the range apart."""
    rows: list[int] = []
    for third in (1, 2, 3):
        row = _first_row(held_out, low + (high - low) * third // 3, rows)
        rows += [row] if row is not None else []
    batch = held_out.batch.rows(torch.tensor(rows))
    written_BT = family.solve(
        batch.source_BS, min(batch.labels_BT.shape[1], family.config.max_positions)
    )
    texts = [
        [_text(task, row) for row in tokens.tolist()]
        for tokens in (batch.source_BS, batch.labels_BT, written_BT)
    ]
    ended = (written_BT == EOS).any(1).tolist()
    return [Example(*told) for told in zip(*texts, ended, strict=True)]


def other_lengths(family: Family, task: Task, config: RunConfig) -> list[dict[str, Any]]:
    """Scores at lengths that never trained: one shorter, one longer, and twice as long, as far as there are positions and held-out
    sequences for them."""
    low, high = config.task.min_length, config.task.max_length
    longest = high
    while (
        longest < 2 * high
        and max(longest + 1, task.answer_length(longest + 1)) < config.model.max_positions
    ):
        longest += 1
    wanted = {low - 1} if low > 1 else set()
    wanted |= {high + 1, longest} if longest > high else set()
    found = [
        evaluate(family, held_out_set(task, OTHER_N, length, length))
        for length in sorted(wanted)
        if _exist(task, length)
    ]
    return [dataclasses.asdict(scores.by_length[0]) for scores in found]


def attention_picture(
    family: Family, task: Task, held_out: HeldOut, length: int, path: Path
) -> str:
    """Draw where the decoder looks in one held-out sequence, given the right answer so far; the picture in words, and nothing for a
    family that has no cross-attention."""
    row = _first_row(held_out, length, [])
    assert row is not None  # a task without held-out sequences is no task
    size = int(held_out.lengths_B[row])
    probe = held_out.batch.rows(torch.tensor([row]))
    weights: list[Tensor] = family.record(probe).cross_attention
    if not weights:
        return ""
    names = task.vocabulary.name
    columns = [names(token) for token in probe.source_BS[0].tolist()][: size + 1]
    rows = [names(token) for token in probe.labels_BT[0].tolist()][: task.answer_length(size) + 1]
    layers, heads = len(weights), weights[0].shape[1]
    shown_LHTS = torch.stack(
        [layer[0, :MOST_HEADS, : len(rows), : len(columns)] for layer in weights[:MOST_LAYERS]]
    )
    save(cross_attention(shown_LHTS.numpy(), rows, columns), path)
    part = f"the first {min(layers, MOST_LAYERS)} of {layers} layers and {min(heads, MOST_HEADS)} of {heads} heads" if (
        layers > MOST_LAYERS or heads > MOST_HEADS
    ) else f"{_count(layers, 'layer')} with {_count(heads, 'head')}"  # fmt: skip
    return f"Cross-attention, {part}, while the answer to {' '.join(columns[:-1])} is written: a heatmap for each head"


# The sections


def _metadata(
    repo: str, dataset: str | None, license: str, manifest: Manifest, task: Task, scores: Mapping[str, Any]
) -> ModelCardData:  # fmt: skip
    config = manifest.config
    origin = origin_of(config.task.rows).get("dataset") if config.task.task == ROWS else None
    datasets = [name for name in (dataset, origin) if name]
    asked: dict[str, Any] = {
        "task_type": "other",  # no pipeline of transformers takes a sequence of symbols
        "task_name": "Sequence to sequence",
        "dataset_type": dataset or "synthetic",
        "dataset_name": f"{task.name}, held-out sequences of {_lengths(config.task)} symbols ({task.vocabulary.describe()})",
        "dataset_split": "test",
    }
    results = [
        EvalResult(
            **asked,
            metric_type=kind,
            metric_name=name,
            metric_value=scores[kind],
            metric_args={"n": scores["n"]},
        )
        for kind, name in (("exact_match", "Exact match"), ("token_accuracy", "Token accuracy"))
        if scores[kind] is not None
    ]
    return ModelCardData(
        license=license or None,
        library_name="transformers",
        tags=[TAG, task.name, config.family],
        datasets=datasets or None,
        metrics=["exact_match"],
        model_name=repo.split("/")[1],
        eval_results=results,
        playground={"task": f"{task.name} {_lengths(config.task, '–')}", "step": manifest.step},
    )


def _what_it_is(manifest: Manifest, task: Task, scores: Mapping[str, Any]) -> str:
    config, model = manifest.config, manifest.config.model
    source = task.question()
    right_answer = task.right(task.vocabulary.encode(source))
    shown = (
        f": {_code(source)} → {_code(_text(task, right_answer))}"
        if right_answer is not None
        else ""
    )
    rule = (type(task).__doc__ or "").split(":")[0].strip().rstrip(".")
    rule = f" ({rule[0].lower()}{rule[1:]})" if rule and "\n" not in rule else ""
    right = round(scores["exact_match"] * scores["n"])
    size = (
        "A small"
        if model.parameter_count() < 10_000_000
        else "An"
        if _kind(config)[0] in "aeiou"
        else "A"
    )
    share = scores["exact_match"]
    verdict = (
        " **It has not learned its task.**"
        if share < 0.1
        else " It has learned its task in part only."
        if share < 0.9
        else ""
    )
    return (
        f"{size} {_kind(config)}, trained from scratch on one task, *{task.name}*{rule}{shown}. It has "
        f"{model.parameter_count():,} parameters in {_layers(config)}, was trained on sequences of {_lengths(config.task)} of the "
        f"symbols {_symbols(task)}, and answers {right:,} of {scores['n']:,} sequences that it never trained on entirely right "
        f"({_percent(scores['exact_match'])}).{verdict}"
    )


def _kind(config: RunConfig) -> str:
    """Return what the model is, as a noun."""
    cell, alignment = getattr(config.model, "cell", ""), getattr(config.model, "alignment", "none")
    back = "" if alignment == "none" else f" with {alignment} attention"
    nouns = {
        "transformer": "encoder-decoder transformer",
        "prebuilt": "encoder-decoder transformer, made of PyTorch's own layers",
        "encoder-only": "transformer encoder that fills in the whole answer at once",
        "decoder-only": "transformer decoder that continues the sequence with its answer",
        "recurrent": f"recurrent encoder-decoder ({cell.upper()}{back})",
        "bert": "model of BERT's architecture, without any pretrained weights",
        "gpt2": "model of GPT-2's architecture, without any pretrained weights",
        "bart": "model of BART's architecture, without any pretrained weights",
    }
    return nouns[config.family]


def _layers(config: RunConfig) -> str:
    """Return the layers of the model, in words."""
    model = config.model
    both = f"{model.n_layers}+{model.n_layers} layers"
    if config.family == "recurrent":
        return both
    one_stack = config.family in ("encoder-only", "decoder-only", "bert", "gpt2")
    return f"{_count(model.n_layers, 'layer') if one_stack else both} with {_count(model.n_heads, 'head')} each"


def _in_notes(notes: str) -> str:
    paragraphs = [_escaped(line) for line in notes.splitlines() if line.strip()]
    return (
        "Its author says:\n\n" + "\n>\n".join(f"> {text}" for text in paragraphs)
        if paragraphs
        else ""
    )


def _in_examples(examples: list[Example], task: Task) -> str:
    def verdict(example: Example) -> str:
        if example.given == example.answer and example.ended:
            return "right"
        unended = "" if example.ended else ", and it did not stop"
        return f"**wrong**: {_code(example.answer, in_table=True)} is right{unended}"

    def cell(text: str) -> str:
        return _code(text, in_table=True) if text else "nothing"

    if not examples:
        return ""

    table = _table(
        ["held-out sequence", "this model's answer", ""],
        [[cell(example.source), cell(example.given), verdict(example)] for example in examples],
    )
    return f"{table}\n\nThese are the first held-out sequences of their lengths, not picked by how it did."


def _how_to_load(
    repo: str, revision: str, form: Form, code: tuple[int, int], examples: list[Example], task: Task
) -> str:
    best = next((each for each in examples if each.given == each.answer and each.ended), None)
    printed = f"  # {best.given}" if best else ""
    asked = json.dumps(
        best.source if best else examples[0].source if examples else task.question(),
        ensure_ascii=False,
    )
    pinned = "" if revision == "main" else f', revision="{revision}"'
    trusted = ", trust_remote_code=True" if form.has_code else ""
    pulled = "" if revision == "main" else f" --revision {revision}"
    return f"""## Use it

```python
from transformers import {form.auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}"{pinned}{trusted})
model = {form.auto}.from_pretrained("{repo}"{pinned}{trusted})

inputs = tokenizer({asked}, return_tensors="pt")
{_generating(form)}{printed}
```

{_on_the_code(form, code)} Symbols stand apart by blanks. A symbol that the model does not know is an error of the tokenizer \
(`WordLevel error: Missing [UNK] token`): there is no token for it. No `pipeline` of transformers fits; use the lines above.

To look inside, or to train it further, in [Transformer Playground]({home()}), where no code of a repository is ever run:

```
python -m playground pull {repo}{pulled}
```"""


def _generating(form: Form) -> str:
    """Return the lines that ask a model and print its answer, for each way of answering."""
    if form.auto == CAUSAL:
        return """row = model.generate(**inputs)
print(tokenizer.decode(row[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))"""
    if form.auto == MASKED:
        blanks = '[inputs["token_type_ids"] == 1]' if form.blanks else "[0]"
        return f"""tokens = model(**inputs).logits.argmax(-1){blanks}
print(tokenizer.decode(tokens).split(tokenizer.eos_token)[0].strip())"""
    return """answer = model.generate(**inputs)
print(tokenizer.decode(answer[0], skip_special_tokens=True))"""


def _on_the_code(form: Form, code: tuple[int, int]) -> str:
    """Return what a reader should know of the code that these lines run."""
    if not form.has_code:
        return f"`{form.model}` is a class of transformers, so no code of this repository is run."
    lines, files = code
    first = "transformer.py" if form.module == "automodel" else f"{form.module}.py"
    size = f"{_count(lines, 'line')} in {_count(files, 'file')}"
    return f"""`trust_remote_code=True` runs the Python files of this repository: {size} that write the model out in plain PyTorch. \
Read them first; `{first}` is where to begin. A later commit may change them: to run only what you have read, give both calls the \
`revision` of its commit."""


def home() -> str:
    """Return where the playground is: the Space that this runs on, PLAYGROUND_URL, or else the models that were made with it."""
    url = os.environ.get("PLAYGROUND_URL", "")
    if re.fullmatch(r"https?://[\w.:/~%-]+", url, re.ASCII):
        return url
    if re.fullmatch(r"[\w.-]+/[\w.-]+", os.environ.get("SPACE_ID", ""), re.ASCII):
        return f"https://huggingface.co/spaces/{os.environ['SPACE_ID']}"
    return f"https://huggingface.co/models?other={TAG}"


def _licence(license: str, task: TaskConfig, form: Form) -> str:
    origin = origin_of(task.rows).get("dataset") if task.task == ROWS else None
    said = (
        f"{license}, for the weights."
        if license
        else "Its author names no licence for the weights: ask before you use them."
    )
    if origin:
        said += f" It was trained on rows of [{_escaped(origin)}](https://huggingface.co/datasets/{origin}), whose terms apply to them."
    elif task.task == ROWS:
        said += " The rows that it was trained on are not part of this repository."
    return f"## Licence\n\n{said}" + (
        " The code beside them is MIT; see `LICENSE`." if form.has_code else ""
    )


def _how_well(scores: Mapping[str, Any], others: list[dict[str, Any]], manifest: Manifest) -> str:
    lines = [_length_line(line, "") for line in scores["by_length"]]
    lines += [_length_line(line, " (never trained)") for line in others]
    lines.sort(key=lambda line: int(line[0].split()[0]))
    table = _table(
        ["length", "asked", "held out in all", "exact match", "95 % interval", "token accuracy"],
        lines,
        right=True,
    )
    if len(lines) > LONG_TABLE:
        table = (
            f"<details><summary>{_count(len(lines), 'length')}</summary>\n\n{table}\n\n</details>"
        )
    token = (
        ""
        if scores["token_accuracy"] is None
        else f"; token accuracy, symbol by symbol at its place, is {_percent(scores['token_accuracy'])}"
    )
    return f"""## How well it does

Exact match is {_percent(scores["exact_match"])} of {scores["n"]:,} distinct held-out sequences{token}. Answers are written freely, \
each symbol from the model's own earlier ones, and count only if every symbol and the end are right.

{table}

Where a length has few held-out sequences, its score says little: see the interval. The scores are in `evaluation.json` too."""


def _length_line(line: Mapping[str, Any], remark: str) -> list[str]:
    there = "not counted" if line["available"] is None else f"{line['available']:,}"
    if line["exact_match"] is None or not line["n"]:
        return [f"{line['length']}{remark}", "0", there, "–", "–", "–"]
    low, high = wilson(round(line["exact_match"] * line["n"]), line["n"])
    token = "–" if line["token_accuracy"] is None else _percent(line["token_accuracy"])
    return [
        f"{line['length']}{remark}",
        f"{line['n']:,}",
        there,
        _percent(line["exact_match"]),
        f"{100 * low:.1f}–{100 * high:.1f} %",
        token,
    ]


def _in_pictures(pictures: list[str]) -> str:
    return "## How it learned, and where it looks\n\n" + "\n\n".join(pictures) if pictures else ""


def _what_it_learned_from(manifest: Manifest, task: Task, dataset: str | None) -> str:
    config = manifest.config
    drawn = manifest.step * config.training.batch_size
    link = f"[{_escaped(dataset or '')}](https://huggingface.co/datasets/{dataset})"
    data = (
        f" What trained it, in that order, and the held-out sequences behind the scores are the dataset {link}."
        if dataset and drawn
        else ""
    )
    seen = (
        f"{_count(manifest.step, 'step')} of {config.training.batch_size:,} drew {drawn:,} of them"
        if drawn
        else "They are drawn"
    )
    if config.task.task == ROWS:
        source = origin_of(config.task.rows).get("dataset")
        brought = (
            f"from the dataset [{_escaped(source)}](https://huggingface.co/datasets/{source})"
            if source
            else "that somebody brought"
        )
        return f"""## What it learned from

Rows of a source and a target {brought}, known by the SHA-256 of their content, `{config.task.rows}`: sources of \
{_lengths(config.task)} symbols, of {len(task.vocabulary.symbols)} different ones in all ({_symbols(task)}). {seen} from seed \
{config.training.seed}, every row equally often. A fixed hash of the source holds one row in {round(1 / HELD_OUT_SHARE)} out; the scores \
above are on such ones alone.{data}"""
    often = "every length equally often" + (
        " from three symbols on" if task.about.shortest == 3 else ""
    )
    return f"""## What it learned from

Sequences made on the spot, of {_lengths(config.task)} symbols ({_symbols(task)}), {often}, and the answer \
that the rule gives. {seen} from seed {config.training.seed}. A fixed hash of the sequence holds one in {round(1 / HELD_OUT_SHARE)} \
out: where such a one was drawn, it counted for nothing, and the scores above are on such ones alone.{data}"""


def _how_it_was_made(manifest: Manifest) -> str:
    config, command = manifest.config, command_line(manifest)
    threads = settings_at(config.training, manifest.changes, manifest.step).threads or 1
    where = (
        f"on {_count(threads, 'processor thread')}"
        if manifest.device == "cpu"
        else "on a GPU (CUDA)"
    )
    versions = ", ".join(
        f"{_escaped(name)} {_escaped(value)}" for name, value in manifest.versions.items()
    )
    changed = [
        each
        for each in manifest.changes
        if each.step < manifest.step and each.setting not in IN_PASSING
    ]
    by_hand = [
        f"- from step {each.step + 1:,} on, `{each.setting}` was {each.value:g}" for each in changed
    ]
    repeated = f"This trains it again:\n\n```\n{command}\n```" if command else ""
    if command and any(each.setting in ("learning_rate", "until") for each in changed):
        repeated = f"This repeats its settings, though not the changes made on the way:\n\n```\n{command}\n```"
    settings = [
        [f"`{key}`", _escaped(f"{value}"), setting_of(key).metadata["help"]]
        for key, value in config.to_fields().items()
        if key != "family"
    ]
    return "\n\n".join(part for part in (
        "## How it was made",
        f"{_count(manifest.step, 'step')} in {manifest.seconds:,.1f} seconds {where}, scoring included; {versions}.",
        repeated,
        "\n".join(["Changed on the way:", "", *by_hand]) if by_hand else "",
        f"<details><summary>All settings</summary>\n\n{_table(['setting', 'value', 'meaning'], settings)}\n\n</details>",
    ) if part)  # fmt: skip


def _limits(
    manifest: Manifest, task: Task, scores: Mapping[str, Any], others: list[dict[str, Any]]
) -> str:
    config = manifest.config
    positions = config.model.max_positions - 1
    points = [
        f"It does this one task and knows these symbols only: {_symbols(task)}. It understands no language; what it is for is "
        "being looked into."
    ]
    for line in others:
        share = _percent(line["exact_match"])
        points.append(
            f"At length {line['length']}, which it never trained on, {share} of {line['n']:,} answers are right."
        )
    if not any(line["length"] > config.task.max_length for line in others):
        points.append(
            f"It has positions for {_count(positions, 'symbol')} and the end sign, and cannot take longer sequences."
        )
    none = [str(line["length"]) for line in scores["by_length"] if not line["n"]]
    if none:
        points.append(
            f"No sequence of length {', '.join(none)} is held out, so nothing is known about {'it' if len(none) == 1 else 'them'}."
        )
    return "## Limits\n\n" + "\n".join(f"- {point}" for point in points)


# Words


def _escaped(text: str) -> str:
    """Text from people as Markdown that shows just these characters: no markup, no HTML, nothing invisible."""
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    plain = "".join(sign if sign.isprintable() else " " for sign in text).strip()
    kept = "".join(
        entities.get(sign) or (f"\\{sign}" if sign in "\\`*_[]!~|$" else sign) for sign in plain
    )
    return re.sub(
        r"^(\d*)([-+=#]|[.)](?=\s|$))", r"\1\\\2", kept
    )  # what begins a heading, a list or a rule


def _code(text: str, *, in_table: bool = False) -> str:
    """Text as Markdown's code, whatever stands in it."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", "\\|" if in_table else "|")


def _symbols(task: Task) -> str:
    return _escaped(task.vocabulary.describe())


def _table(heads: list[str], lines: list[list[str]], *, right: bool = False) -> str:
    rule = "|".join(["--:" if right else "---"] * len(heads))
    return "\n".join(
        [f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)]
    )


def _percent(share: float) -> str:
    """A share in percent with two decimals; only all is 100.00 and only none is 0.00."""
    text = f"{100 * share:.2f}"
    if text == "100.00" and share < 1:
        return "over 99.99 %"
    return "under 0.01 %" if text == "0.00" and share > 0 else f"{text} %"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _lengths(task: TaskConfig, to: str = " to ") -> str:
    return (
        f"{task.min_length}{to}{task.max_length}"
        if task.min_length < task.max_length
        else f"{task.max_length}"
    )


def _text(task: Task, tokens: list[int]) -> str:
    return " ".join(task.vocabulary.decode(tokens))


def _training_alt(lines: list[dict[str, Any]]) -> str:
    looks = [line for line in lines if line.get("exact_match") is not None]
    fall = f"Training loss over {_count(lines[-1]['step'], 'step')}: {lines[0]['loss']:.3g} at first, {lines[-1]['loss']:.3g} at last"
    return fall + (
        f"; exact match on held-out sequences, {_percent(looks[-1]['exact_match'])} at last"
        if looks
        else ""
    )


# Small questions


def _first_row(held_out: HeldOut, length: int, taken: list[int]) -> int | None:
    """The first held-out sequence of this length, or of the next length that has one, or of any."""
    rows = [
        (int(size) < length, int(size), row)
        for row, size in enumerate(held_out.lengths_B)
        if row not in taken
    ]
    return min(rows)[2] if rows else None


def _exist(task: Task, length: int) -> bool:
    return len(held_out_set(task, 1, length, length).lengths_B) > 0


def _is_measured(line: Mapping[str, Any]) -> bool:
    shares = [line[name] for name in ("exact_match", "token_accuracy") if name in line]
    return (
        line["step"] > 0
        and 0 <= line["loss"] < IMAGINARY
        and all(0 <= share <= 1 for share in shares)
    )


class _NoAliases(yaml.SafeLoader):
    """Safe, and small: a few hundred characters of aliases can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not read here")
        return super().compose_node(parent, index)


def _front_matter(text: str) -> dict[str, Any]:
    found = re.match(r"\s*---\r?\n(.*?)\n---\s*(?:\n|\Z)", text[:LARGEST_FRONT_MATTER], re.DOTALL)
    return yaml.load(found[1], Loader=_NoAliases) if found else {}
