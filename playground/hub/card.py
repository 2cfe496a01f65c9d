"""Write and read the model card of a published model.

`write_card` writes README.md, its figures and evaluation.json into the folder of a packaged model.
Every number on the card is measured, and the same checkpoint always gives the same bytes.
`read_scores` reads the scores of a card, which may come from any repository.
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

OTHER_N = 200  # held-out sequences per length that does not occur in training
MOST_LAYERS, MOST_HEADS = 6, 8  # in the attention figure
PROBE_LENGTH = 10
LONG_TABLE = 20  # rows above which a table is collapsed
LARGEST_FRONT_MATTER = 100_000  # characters
IMAGINARY = 1e15  # an upper bound of plausible losses; a foreign checkpoint may contain any number


@dataclass(frozen=True)
class Example:
    """A held-out source, its target, and the generated tokens; `ended`: the model wrote EOS."""

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
    """Write the model card of a checkpoint into the folder of its package.

    Args:
        package: the folder of the packaged model.
        checkpoint: the folder of the checkpoint.
        repo: the repository of the model.
        dataset: the repository of its training set, if it is published.
        notes: text of the author, rendered as plain text.
        revision: the branch that the card describes.
        license: the licence id; empty for that of `default_license`.

    Raises:
        HubError: if a repository, the revision or the licence is not valid.
        CheckpointError: if the checkpoint cannot be read.
        RowsError: if the checkpoint has no scores and its dataset is not stored here.
        OSError: if a file cannot be read or written.
    """
    for name in (repo, dataset) if dataset else (repo,):
        check_repo(name)
    check_revision(revision)
    if license and license not in LICENSES:
        raise HubError(
            f"the licence {license[:60]!r} is not known to the Hub; "
            "give one such as mit, apache-2.0 or cc-by-4.0"
        )
    manifest, family = load_model(checkpoint)
    form = form_of(manifest.config.family)
    license = license or default_license(manifest.config.task)
    task = manifest.config.task.load()
    low, high = manifest.config.task.min_length, manifest.config.task.max_length
    try:
        held_out = held_out_set(task, CONFIRMING_N, low, high)
        scores = manifest.scores or dataclasses.asdict(evaluate(family, held_out))
    except RowsError:
        # The dataset is not stored here, so the card can only repeat the recorded scores.
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
            "Cross-attention weights of each decoder head, teacher-forced:\n\n"
            f"![{shown}](cross-attention.png)"
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

    Models of generated sequences get the MIT licence. Models of a dataset get the licence of the
    Hub dataset that it was loaded from, or none.
    """
    return origin_of(task.rows).get("license", "") if task.task == ROWS else "mit"


def read_scores(card: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the scores that a card reports: `exact_match`, `n` and `token_accuracy`.

    `card` is the text of a README or its metadata. The result is None if the card reports no exact
    match as a fraction of `n` sequences; `token_accuracy` alone may be None. No content of a card
    raises an error.
    """
    try:
        content = _front_matter(card) if isinstance(card, str) else card
        found: dict[str, Any] = {}
        for model in content.get("model-index") or []:
            for metric in [metric for result in model["results"] for metric in result["metrics"]]:
                value, n = metric.get("value"), (metric.get("args") or {}).get("n")
                if is_number(value) and 0 <= value <= 1 and type(n) is int and 0 < n <= 10**9:
                    found.setdefault(metric["type"], (float(value), n))
    except Exception:
        # The card is untrusted; YAML constructors and malformed metadata raise arbitrary errors.
        return None
    if "exact_match" not in found:
        return None
    exact_match, n = found["exact_match"]
    return {
        "exact_match": exact_match,
        "n": n,
        "token_accuracy": found.get("token_accuracy", (None, 0))[0],
    }


# Measurements for the card


def worked_examples(
    family: Family, task: Task, held_out: HeldOut, low: int, high: int
) -> list[Example]:
    """Run the model on the first held-out sequence of three lengths, spread over the range."""
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
    """Evaluate lengths that do not occur in training.

    These are one shorter, one longer and twice as long, if the model has positions and the task has
    held-out sequences for them.
    """
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
    """Draw the cross-attention weights of one held-out sequence, teacher-forced.

    Returns the alternative text of the figure; empty, and no figure, without cross-attention.
    """
    row = _first_row(held_out, length, [])
    assert row is not None  # every task has held-out sequences
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
    part = f"{_count(layers, 'layer')} with {_count(heads, 'head')}"
    if layers > MOST_LAYERS or heads > MOST_HEADS:
        part = (
            f"the first {min(layers, MOST_LAYERS)} of {layers} layers "
            f"and {min(heads, MOST_HEADS)} of {heads} heads"
        )
    source = " ".join(columns[:-1])
    return f"Heatmaps of the cross-attention weights for the source {source}: {part}"


# The sections


def _metadata(
    repo: str,
    dataset: str | None,
    license: str,
    manifest: Manifest,
    task: Task,
    scores: Mapping[str, Any],
) -> ModelCardData:
    config = manifest.config
    origin = origin_of(config.task.rows).get("dataset") if config.task.task == ROWS else None
    datasets = [name for name in (dataset, origin) if name]
    asked: dict[str, Any] = {
        "task_type": "other",  # no transformers pipeline accepts sequences of symbols
        "task_name": "Sequence to sequence",
        "dataset_type": dataset or "synthetic",
        "dataset_name": (
            f"{task.name}, held-out sequences of {_lengths(config.task)} symbols "
            f"({task.vocabulary.describe()})"
        ),
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
        else " It has learned its task only partly."
        if share < 0.9
        else ""
    )
    return (
        f"{size} {_kind(config)}, trained from scratch on one task: *{task.name}*{rule}{shown}. "
        f"It has {model.parameter_count():,} parameters in {_layers(config)}. Its training "
        f"sequences have {_lengths(config.task)} of the symbols {_symbols(task)}. "
        f"It solves {right:,} of {scores['n']:,} held-out sequences exactly "
        f"({_percent(share)}).{verdict}"
    )


def _kind(config: RunConfig) -> str:
    """Return the kind of model as a noun phrase."""
    cell, alignment = getattr(config.model, "cell", ""), getattr(config.model, "alignment", "none")
    back = "" if alignment == "none" else f" with {alignment} attention"
    nouns = {
        "transformer": "encoder-decoder transformer",
        "prebuilt": "encoder-decoder transformer of PyTorch's built-in layers",
        "encoder-only": "transformer encoder that predicts all target tokens in parallel",
        "decoder-only": "transformer decoder that continues the source with the target",
        "recurrent": f"recurrent encoder-decoder ({cell.upper()}{back})",
        "bert": "model with the architecture of BERT, without pretrained weights",
        "gpt2": "model with the architecture of GPT-2, without pretrained weights",
        "bart": "model with the architecture of BART, without pretrained weights",
    }
    return nouns[config.family]


def _layers(config: RunConfig) -> str:
    """Return the number of layers and heads in words."""
    model = config.model
    both = f"{model.n_layers} encoder and {_count(model.n_layers, 'decoder layer')}"
    if config.family == "recurrent":
        return both
    one_stack = config.family in ("encoder-only", "decoder-only", "bert", "gpt2")
    layers = _count(model.n_layers, "layer") if one_stack else both
    return f"{layers} with {_count(model.n_heads, 'head')} each"


def _in_notes(notes: str) -> str:
    paragraphs = [_escaped(line) for line in notes.splitlines() if line.strip()]
    return (
        "Notes of the author:\n\n" + "\n>\n".join(f"> {text}" for text in paragraphs)
        if paragraphs
        else ""
    )


def _in_examples(examples: list[Example], task: Task) -> str:
    def verdict(example: Example) -> str:
        if example.given == example.answer and example.ended:
            return "correct"
        unended = "" if example.ended else "; it generated no end token"
        return f"**wrong**: the target is {_code(example.answer, in_table=True)}{unended}"

    def cell(text: str) -> str:
        return _code(text, in_table=True) if text else "(empty)"

    if not examples:
        return ""

    table = _table(
        ["held-out sequence", "generated tokens", "result"],
        [[cell(example.source), cell(example.given), verdict(example)] for example in examples],
    )
    note = "Each example is the first held-out sequence of its length, not a selected one."
    return f"## Examples\n\n{table}\n\n{note}"


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
    return f"""## How to use

```python
from transformers import {form.auto}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}"{pinned}{trusted})
model = {form.auto}.from_pretrained("{repo}"{pinned}{trusted})

inputs = tokenizer({asked}, return_tensors="pt")
{_generating(form)}{printed}
```

{_on_the_code(form, code)}

Separate symbols by spaces. The vocabulary has no unknown token, so another symbol raises an error \
of the tokenizer (`WordLevel error: Missing [UNK] token`). No `pipeline` of transformers supports \
this model; use the lines above.

To inspect it or train it further in [Transformer Playground]({home()}), which never runs code of \
a repository:

```
python -m playground pull {repo}{pulled}
```"""


def _generating(form: Form) -> str:
    """Return the lines that run a model and print the generated tokens, for an Auto class."""
    if form.auto == CAUSAL:
        return """output = model.generate(**inputs)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))"""
    if form.auto == MASKED:
        blanks = '[inputs["token_type_ids"] == 1]' if form.blanks else "[0]"
        return f"""tokens = model(**inputs).logits.argmax(-1){blanks}
print(tokenizer.decode(tokens).split(tokenizer.eos_token)[0].strip())"""
    return """output = model.generate(**inputs)
print(tokenizer.decode(output[0], skip_special_tokens=True))"""


def _on_the_code(form: Form, code: tuple[int, int]) -> str:
    """Describe the code of the repository that these lines run."""
    if not form.has_code:
        return f"`{form.model}` is a class of transformers; no code of this repository is run."
    lines, files = code
    first = "transformer.py" if form.module == "automodel" else f"{form.module}.py"
    size = f"{_count(lines, 'line')} in {_count(files, 'file')}"
    return f"""`trust_remote_code=True` runs the Python files of this repository: {size} that \
implement the model in plain PyTorch. Review them first, starting with `{first}`. A later commit \
may change them: to run only the code that you reviewed, pass the `revision` of its commit to both \
calls."""


def home() -> str:
    """Return the URL of the playground.

    This is PLAYGROUND_URL, else the Space of this process, else the list of its models on the Hub.
    """
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
        else "The author names no licence for the weights: ask before you use them."
    )
    if origin:
        url = f"https://huggingface.co/datasets/{origin}"
        said += f" The training data is from [{_escaped(origin)}]({url}), whose terms apply to it."
    elif task.task == ROWS:
        said += " The training data is not part of this repository."
    code = " The code of the model is MIT; see `LICENSE`." if form.has_code else ""
    return f"## Licence\n\n{said}{code}"


def _how_well(scores: Mapping[str, Any], others: list[dict[str, Any]], manifest: Manifest) -> str:
    lines = [_length_line(line, "") for line in scores["by_length"]]
    lines += [_length_line(line, " (not in training)") for line in others]
    lines.sort(key=lambda line: int(line[0].split()[0]))
    table = _table(
        ["length", "evaluated", "held out", "exact match", "95 % interval", "token accuracy"],
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
        else f"; token accuracy, position by position, is {_percent(scores['token_accuracy'])}"
    )
    return f"""## Evaluation

Exact match is {_percent(scores["exact_match"])} on {scores["n"]:,} distinct held-out \
sequences{token}. Generation is greedy and free-running. A sequence is correct only if every token \
is correct, the end token included.

{table}

The score of a length with few held-out sequences is uncertain; see the 95 % interval (Wilson). \
`evaluation.json` contains the same scores."""


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
    return "## Training curve and attention\n\n" + "\n\n".join(pictures) if pictures else ""


def _what_it_learned_from(manifest: Manifest, task: Task, dataset: str | None) -> str:
    config = manifest.config
    drawn = manifest.step * config.training.batch_size
    link = f"[{_escaped(dataset or '')}](https://huggingface.co/datasets/{dataset})"
    data = (
        f" The dataset {link} contains the training sequences in order and the held-out ones."
        if dataset and drawn
        else ""
    )
    noun = "pairs" if config.task.task == ROWS else "sequences"
    seen = (
        f"Training sampled {drawn:,} {noun} ({_count(manifest.step, 'step')} of "
        f"{config.training.batch_size:,})"
        if drawn
        else f"{noun.capitalize()} are sampled"
    )
    if config.task.task == ROWS:
        source = origin_of(config.task.rows).get("dataset")
        brought = (
            f"the dataset [{_escaped(source)}](https://huggingface.co/datasets/{source})"
            if source
            else "a dataset of the author"
        )
        return f"""## Training data

Pairs of a source and a target from {brought}, with the SHA-256 `{config.task.rows}`. Sources have \
{_lengths(config.task)} symbols; the vocabulary has {len(task.vocabulary.symbols)} symbols \
({_symbols(task)}). {seen} with seed {config.training.seed}, every pair with equal probability. A \
fixed hash of the source holds out one pair in {round(1 / HELD_OUT_SHARE)}; the scores above are \
on held-out pairs only.{data}"""
    often = "every length with equal probability" + (
        " from three symbols on" if task.about.shortest == 3 else ""
    )
    return f"""## Training data

Generated sequences of {_lengths(config.task)} symbols ({_symbols(task)}), {often}, and the target \
that the rule of the task gives. {seen} with seed {config.training.seed}. A fixed hash of the \
sequence holds out one in {round(1 / HELD_OUT_SHARE)}. Held-out sequences have no loss in \
training, and the scores above are on held-out sequences only.{data}"""


def _how_it_was_made(manifest: Manifest) -> str:
    config, command = manifest.config, command_line(manifest)
    threads = settings_at(config.training, manifest.changes, manifest.step).threads or 1
    where = f"on {_count(threads, 'CPU thread')}" if manifest.device == "cpu" else "on a GPU (CUDA)"
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
    repeated = f"To reproduce the training:\n\n```\n{command}\n```" if command else ""
    if command and any(each.setting in ("learning_rate", "until") for each in changed):
        repeated = (
            "This command has the same settings, without the changes during training:\n\n"
            f"```\n{command}\n```"
        )
    settings = [
        [f"`{key}`", _escaped(f"{value}"), setting_of(key).metadata["help"]]
        for key, value in config.to_fields().items()
        if key != "family"
    ]
    table = _table(["setting", "value", "meaning"], settings)
    parts = (
        "## Training procedure",
        f"{_count(manifest.step, 'step')} in {manifest.seconds:,.1f} seconds {where}, evaluation "
        f"included; {versions}.",
        repeated,
        "\n".join(["Settings changed during training:", "", *by_hand]) if by_hand else "",
        f"<details><summary>All settings</summary>\n\n{table}\n\n</details>",
    )
    return "\n\n".join(part for part in parts if part)


def _limits(
    manifest: Manifest, task: Task, scores: Mapping[str, Any], others: list[dict[str, Any]]
) -> str:
    config = manifest.config
    positions = config.model.max_positions - 1
    points = [
        f"It performs this one task on these symbols only: {_symbols(task)}. It has no language "
        "ability. It is meant for studying how transformers work."
    ]
    for line in others:
        share = _percent(line["exact_match"])
        points.append(
            f"At length {line['length']}, which does not occur in training, exact match is "
            f"{share} on {_count(line['n'], 'sequence')}."
        )
    if not any(line["length"] > config.task.max_length for line in others):
        points.append(
            f"It has positions for {_count(positions, 'symbol')} and the end token, and cannot "
            "process longer sequences."
        )
    none = [str(line["length"]) for line in scores["by_length"] if not line["n"]]
    if none:
        whose = "its" if len(none) == 1 else "their"
        points.append(
            f"No sequence of length {', '.join(none)} is held out, so {whose} accuracy is unknown."
        )
    return "## Limitations\n\n" + "\n".join(f"- {point}" for point in points)


# Formatting


def _escaped(text: str) -> str:
    """Escape untrusted text as Markdown without markup, HTML or invisible characters."""
    entities = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    plain = "".join(sign if sign.isprintable() else " " for sign in text).strip()
    kept = "".join(
        entities.get(sign) or (f"\\{sign}" if sign in "\\`*_[]!~|$" else sign) for sign in plain
    )
    # These characters would begin a heading, a list or a rule.
    return re.sub(r"^(\d*)([-+=#]|[.)](?=\s|$))", r"\1\\\2", kept)


def _code(text: str, *, in_table: bool = False) -> str:
    """Format any text as Markdown code."""
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
    """Format a fraction in percent; only 1 gives 100.00 %, and only 0 gives 0.00 %."""
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
    first, last = lines[0]["loss"], lines[-1]["loss"]
    steps = _count(lines[-1]["step"], "step")
    fall = f"Training loss over {steps}, from {first:.3g} to {last:.3g}"
    score = f"; final held-out exact match: {_percent(looks[-1]['exact_match'])}" if looks else ""
    return fall + score


# Helpers


def _first_row(held_out: HeldOut, length: int, taken: list[int]) -> int | None:
    """Return the first held-out sequence of this length, else of the next longer one, else any."""
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
    """A safe YAML loader without aliases, a few of which can expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _front_matter(text: str) -> dict[str, Any]:
    found = re.match(r"\s*---\r?\n(.*?)\n---\s*(?:\n|\Z)", text[:LARGEST_FRONT_MATTER], re.DOTALL)
    return yaml.load(found[1], Loader=_NoAliases) if found else {}
