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

from playground.architectures.base import Seq2SeqModel
from playground.checkpoints.checkpoint import iter_metrics, load_model
from playground.checkpoints.manifest import Manifest, is_number
from playground.checkpoints.train_command import training_command
from playground.common.stats import wilson_interval
from playground.datasets.pairs import DatasetError
from playground.datasets.storage import dataset_origin
from playground.evaluation import evaluate
from playground.figures.training import cross_attention, save, training_curve
from playground.tasks import EOS, LOOKUP
from playground.tasks.held_out import HELD_OUT_FRACTION, HeldOutSet, build_held_out_set
from playground.tasks.task import Task
from playground.training.config import RunConfig, TaskConfig, field_named
from playground.training.setting_changes import RESULT_NEUTRAL_SETTINGS, config_at_step
from playground.training.trainer import FINAL_EVAL_SIZE

from .errors import HubError, ensure_repo, ensure_revision
from .formats import CAUSAL, MASKED, PackageFormat, code_lines, package_format
from .repo_ids import LICENSES, TAG

OTHER_LENGTHS_N = 200  # held-out sequences per length that does not occur in training
MAX_LAYERS, MAX_HEADS = 6, 8  # in the attention figure
PROBE_LENGTH = 10
COLLAPSE_ROWS_ABOVE = 20  # rows above which a table is collapsed
MAX_FRONT_MATTER_BYTES = 100_000  # characters
MAX_PLAUSIBLE = (
    1e15  # an upper bound of plausible losses; a foreign checkpoint may contain any number
)


@dataclass(frozen=True)
class Example:
    """A held-out source, its target, and the generated tokens; `ended`: the model wrote EOS."""

    source: str
    prediction: str
    target: str
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
        DatasetError: if the checkpoint has no scores and its dataset is not stored here.
        OSError: if a file cannot be read or written.
    """
    for name in (repo, dataset) if dataset else (repo,):
        ensure_repo(name)
    ensure_revision(revision)
    if license and license not in LICENSES:
        raise HubError(
            f"the licence {license[:60]!r} is not known to the Hub; "
            "give one such as mit, apache-2.0 or cc-by-4.0"
        )
    manifest, model = load_model(checkpoint)
    format = package_format(manifest.config.architecture)
    license = license or default_license(manifest.config.task)
    task = manifest.config.task.load()
    low, high = manifest.config.task.min_length, manifest.config.task.max_length
    try:
        held_out = build_held_out_set(task, FINAL_EVAL_SIZE, low, high)
        scores = manifest.scores or dataclasses.asdict(evaluate(model, held_out))
    except DatasetError:
        # The dataset is not stored here, so the card can only repeat the recorded scores.
        if manifest.scores is None:
            raise
        held_out, scores = None, manifest.scores
    others = other_lengths(model, task, manifest.config) if held_out else []
    examples = worked_examples(model, task, held_out, low, high) if held_out else []
    lines = [
        line
        for line in iter_metrics(checkpoint)
        if line["step"] <= manifest.step and _is_measured(line)
    ]
    figures = []
    if lines:
        save(training_curve(lines), package / "training.png")
        figures.append(f"![{_training_alt_text(lines)}](training.png)")
    length, picture = max(low, min(high, PROBE_LENGTH)), package / "cross-attention.png"
    displayed = attention_picture(model, task, held_out, length, picture) if held_out else ""
    if displayed:
        figures.append(
            "Cross-attention weights of each decoder head, teacher-forced:\n\n"
            f"![{displayed}](cross-attention.png)"
        )
    parts = [
        f"# {_escaped(repo.split('/')[1])}",
        _description(manifest, task, scores),
        _notes(notes),
        _examples(examples, task),
        _usage(repo, revision, format, code_lines(package), examples, task),
        _evaluation(scores, others, manifest),
        _figures(figures),
        _training_data(manifest, task, dataset),
        _training_procedure(manifest),
        _limitations(manifest, task, scores, others),
        _license(license, manifest.config.task, format),
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
    return dataset_origin(task.dataset_sha256).get("license", "") if task.task == LOOKUP else "mit"


def read_scores(card: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the scores that a card reports: `exact_match`, `n` and `token_accuracy`.

    `card` is the text of a README or its metadata. The result is None if the card reports no exact
    match as a fraction of `n` sequences; `token_accuracy` alone may be None. No content of a card
    raises an error.
    """
    try:
        content = _front_matter(card) if isinstance(card, str) else card
        scores: dict[str, Any] = {}
        for model in content.get("model-index") or []:
            for metric in [metric for result in model["results"] for metric in result["metrics"]]:
                value, n = metric.get("value"), (metric.get("args") or {}).get("n")
                if is_number(value) and 0 <= value <= 1 and type(n) is int and 0 < n <= 10**9:
                    scores.setdefault(metric["type"], (float(value), n))
    except Exception:
        # The card is untrusted; YAML constructors and malformed metadata raise arbitrary errors.
        return None
    if "exact_match" not in scores:
        return None
    exact_match, n = scores["exact_match"]
    return {
        "exact_match": exact_match,
        "n": n,
        "token_accuracy": scores.get("token_accuracy", (None, 0))[0],
    }


# Measurements for the card


def worked_examples(
    model: Seq2SeqModel, task: Task, held_out: HeldOutSet, low: int, high: int
) -> list[Example]:
    """Run the model on the first held-out sequence of three lengths, spread over the range."""
    rows: list[int] = []
    for third in (1, 2, 3):
        row = _first_example(held_out, low + (high - low) * third // 3, rows)
        rows += [row] if row is not None else []
    batch = held_out.batch.select(torch.tensor(rows))
    written_BT = model.generate(
        batch.source_BS, min(batch.labels_BT.shape[1], model.config.max_positions)
    )
    texts = [
        [_text(task, row) for row in tokens.tolist()]
        for tokens in (batch.source_BS, batch.labels_BT, written_BT)
    ]
    ended = (written_BT == EOS).any(1).tolist()
    return [Example(*texts_by_row) for texts_by_row in zip(*texts, ended, strict=True)]


def other_lengths(model: Seq2SeqModel, task: Task, config: RunConfig) -> list[dict[str, Any]]:
    """Evaluate lengths that do not occur in training.

    These are one shorter, one longer and twice as long, if the model has positions and the task has
    held-out sequences for them.
    """
    low, high = config.task.min_length, config.task.max_length
    max_length = high
    while (
        max_length < 2 * high
        and max(max_length + 1, task.max_target_length(max_length + 1)) < config.model.max_positions
    ):
        max_length += 1
    lengths = {low - 1} if low > 1 else set()
    lengths |= {high + 1, max_length} if max_length > high else set()
    results = [
        evaluate(model, build_held_out_set(task, OTHER_LENGTHS_N, length, length))
        for length in sorted(lengths)
        if _has_length(task, length)
    ]
    return [dataclasses.asdict(scores.by_length[0]) for scores in results]


def attention_picture(
    model: Seq2SeqModel, task: Task, held_out: HeldOutSet, length: int, path: Path
) -> str:
    """Draw the cross-attention weights of one held-out sequence, teacher-forced.

    Returns the alternative text of the figure; empty, and no figure, without cross-attention.
    """
    row = _first_example(held_out, length, [])
    assert row is not None  # every task has held-out sequences
    size = int(held_out.lengths_B[row])
    probe = held_out.batch.select(torch.tensor([row]))
    weights: list[Tensor] = model.attention_weights(probe).cross
    if not weights:
        return ""
    names = task.vocabulary.token_name
    columns = [names(token) for token in probe.source_BS[0].tolist()][: size + 1]
    rows = [names(token) for token in probe.labels_BT[0].tolist()][
        : task.max_target_length(size) + 1
    ]
    layers, heads = len(weights), weights[0].shape[1]
    visible_LHTS = torch.stack(
        [layer[0, :MAX_HEADS, : len(rows), : len(columns)] for layer in weights[:MAX_LAYERS]]
    )
    save(cross_attention(visible_LHTS.numpy(), rows, columns), path)
    part = f"{_count(layers, 'layer')} with {_count(heads, 'head')}"
    if layers > MAX_LAYERS or heads > MAX_HEADS:
        part = (
            f"the first {min(layers, MAX_LAYERS)} of {layers} layers "
            f"and {min(heads, MAX_HEADS)} of {heads} heads"
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
    origin = (
        dataset_origin(config.task.dataset_sha256).get("dataset")
        if config.task.task == LOOKUP
        else None
    )
    datasets = [name for name in (dataset, origin) if name]
    evaluation: dict[str, Any] = {
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
            **evaluation,
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
        tags=[TAG, task.name, config.architecture],
        datasets=datasets or None,
        metrics=["exact_match"],
        model_name=repo.split("/")[1],
        eval_results=results,
        playground={"task": f"{task.name} {_lengths(config.task, '–')}", "step": manifest.step},
    )


def _description(manifest: Manifest, task: Task, scores: Mapping[str, Any]) -> str:
    config, model = manifest.config, manifest.config.model
    source = task.example_source()
    right_answer = task.target_for(task.vocabulary.encode(source))
    displayed = (
        f": {_markdown_code(source)} → {_markdown_code(_text(task, right_answer))}"
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
        if _architecture(config)[0] in "aeiou"
        else "A"
    )
    share = scores["exact_match"]
    quality = (
        " **It has not learned its task.**"
        if share < 0.1
        else " It has learned its task only partly."
        if share < 0.9
        else ""
    )
    return (
        f"{size} {_architecture(config)}, trained from scratch on one task: "
        f"*{task.name}*{rule}{displayed}. It has {model.parameter_count():,} parameters in "
        f"{_layers(config)}. Its training sequences have {_lengths(config.task)} of the symbols "
        f"{_alphabet(task)}. It solves {right:,} of {scores['n']:,} held-out sequences exactly "
        f"({_percent(share)}).{quality}"
    )


def _architecture(config: RunConfig) -> str:
    """Return the kind of model as a noun phrase."""
    cell, alignment = getattr(config.model, "cell", ""), getattr(config.model, "attention", "none")
    back = "" if alignment == "none" else f" with {alignment} attention"
    nouns = {
        "transformer": "encoder-decoder transformer",
        "torch-transformer": "encoder-decoder transformer of PyTorch's built-in layers",
        "encoder-only": "transformer encoder that predicts all target tokens in parallel",
        "decoder-only": "transformer decoder that continues the source with the target",
        "recurrent": f"recurrent encoder-decoder ({cell.upper()}{back})",
        "bert": "model with the architecture of BERT, without pretrained weights",
        "gpt2": "model with the architecture of GPT-2, without pretrained weights",
        "bart": "model with the architecture of BART, without pretrained weights",
    }
    return nouns[config.architecture]


def _layers(config: RunConfig) -> str:
    """Return the number of layers and heads in words."""
    model = config.model
    both = f"{model.n_layers} encoder and {_count(model.n_layers, 'decoder layer')}"
    if config.architecture == "recurrent":
        return both
    one_stack = config.architecture in ("encoder-only", "decoder-only", "bert", "gpt2")
    layers = _count(model.n_layers, "layer") if one_stack else both
    return f"{layers} with {_count(model.attention_heads, 'head')} each"


def _notes(notes: str) -> str:
    paragraphs = [_escaped(line) for line in notes.splitlines() if line.strip()]
    return (
        "Notes of the author:\n\n" + "\n>\n".join(f"> {text}" for text in paragraphs)
        if paragraphs
        else ""
    )


def _examples(examples: list[Example], task: Task) -> str:
    def verdict(example: Example) -> str:
        if example.target == example.prediction and example.ended:
            return "correct"
        unended = "" if example.ended else "; it generated no end token"
        return (
            f"**wrong**: the target is {_markdown_code(example.prediction, in_table=True)}{unended}"
        )

    def cell(text: str) -> str:
        return _markdown_code(text, in_table=True) if text else "(empty)"

    if not examples:
        return ""

    table = _table(
        ["held-out sequence", "generated tokens", "result"],
        [[cell(example.source), cell(example.target), verdict(example)] for example in examples],
    )
    note = "Each example is the first held-out sequence of its length, not a selected one."
    return f"## Examples\n\n{table}\n\n{note}"


def _usage(
    repo: str,
    revision: str,
    auto_format: PackageFormat,
    code: tuple[int, int],
    examples: list[Example],
    task: Task,
) -> str:
    best = next((each for each in examples if each.target == each.prediction and each.ended), None)
    printed = f"  # {best.target}" if best else ""
    argument = json.dumps(
        best.source if best else examples[0].source if examples else task.example_source(),
        ensure_ascii=False,
    )
    revision_argument = "" if revision == "main" else f', revision="{revision}"'
    trusted = ", trust_remote_code=True" if auto_format.has_code else ""
    pulled = "" if revision == "main" else f" --revision {revision}"
    return f"""## How to use

```python
from transformers import {auto_format.auto_class}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{repo}"{revision_argument}{trusted})
model = {auto_format.auto_class}.from_pretrained("{repo}"{revision_argument}{trusted})

inputs = tokenizer({argument}, return_tensors="pt")
{_generation(auto_format)}{printed}
```

{_custom_code(auto_format, code)}

Separate symbols by spaces. The vocabulary has no unknown token, so another symbol raises an error \
of the tokenizer (`WordLevel error: Missing [UNK] token`). No `pipeline` of transformers supports \
this model; use the lines above.

To inspect it or train it further in [Transformer Playground]({playground_url()}), which never \
runs code of a repository:

```
python -m playground pull {repo}{pulled}
```"""


def _generation(form: PackageFormat) -> str:
    """Return the lines that run a model and print the generated tokens, for an Auto class."""
    if form.auto_class == CAUSAL:
        return """output = model.generate(**inputs)
print(tokenizer.decode(output[0, inputs["input_ids"].shape[1]:], skip_special_tokens=True))"""
    if form.auto_class == MASKED:
        blanks = '[inputs["token_type_ids"] == 1]' if form.needs_mask_tokens else "[0]"
        return f"""tokens = model(**inputs).logits.argmax(-1){blanks}
print(tokenizer.decode(tokens).split(tokenizer.eos_token)[0].strip())"""
    return """output = model.generate(**inputs)
print(tokenizer.decode(output[0], skip_special_tokens=True))"""


def _custom_code(form: PackageFormat, code: tuple[int, int]) -> str:
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


def playground_url() -> str:
    """Return the URL of the playground.

    This is PLAYGROUND_URL, else the Space of this process, else the list of its models on the Hub.
    """
    url = os.environ.get("PLAYGROUND_URL", "")
    if re.fullmatch(r"https?://[\w.:/~%-]+", url, re.ASCII):
        return url
    if re.fullmatch(r"[\w.-]+/[\w.-]+", os.environ.get("SPACE_ID", ""), re.ASCII):
        return f"https://huggingface.co/spaces/{os.environ['SPACE_ID']}"
    return f"https://huggingface.co/models?other={TAG}"


def _license(license: str, task: TaskConfig, form: PackageFormat) -> str:
    origin = dataset_origin(task.dataset_sha256).get("dataset") if task.task == LOOKUP else None
    statement = (
        f"{license}, for the weights."
        if license
        else "The author names no licence for the weights: contact the author before you use them."
    )
    if origin:
        url = f"https://huggingface.co/datasets/{origin}"
        statement += (
            f" The training data is from [{_escaped(origin)}]({url}), whose terms apply to it."
        )
    elif task.task == LOOKUP:
        statement += " The training data is not part of this repository."
    code = " The code of the model is MIT; see `LICENSE`." if form.has_code else ""
    return f"## Licence\n\n{statement}{code}"


def _evaluation(scores: Mapping[str, Any], others: list[dict[str, Any]], manifest: Manifest) -> str:
    lines = [_length_line(line, "") for line in scores["by_length"]]
    lines += [_length_line(line, " (not in training)") for line in others]
    lines.sort(key=lambda line: int(line[0].split()[0]))
    table = _table(
        ["length", "evaluated", "held out", "exact match", "95 % interval", "token accuracy"],
        lines,
        right=True,
    )
    if len(lines) > COLLAPSE_ROWS_ABOVE:
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
    low, high = wilson_interval(round(line["exact_match"] * line["n"]), line["n"])
    token = "–" if line["token_accuracy"] is None else _percent(line["token_accuracy"])
    return [
        f"{line['length']}{remark}",
        f"{line['n']:,}",
        there,
        _percent(line["exact_match"]),
        f"{100 * low:.1f}–{100 * high:.1f} %",
        token,
    ]


def _figures(figures: list[str]) -> str:
    return "## Training curve and attention\n\n" + "\n\n".join(figures) if figures else ""


def _training_data(manifest: Manifest, task: Task, dataset: str | None) -> str:
    config = manifest.config
    drawn = manifest.step * config.training.batch_size
    link = f"[{_escaped(dataset or '')}](https://huggingface.co/datasets/{dataset})"
    data = (
        f" The dataset {link} contains the training sequences in order and the held-out ones."
        if dataset and drawn
        else ""
    )
    noun = "pairs" if config.task.task == LOOKUP else "sequences"
    summary = (
        f"Training sampled {drawn:,} {noun} ({_count(manifest.step, 'step')} of "
        f"{config.training.batch_size:,})"
        if drawn
        else f"{noun.capitalize()} are sampled"
    )
    if config.task.task == LOOKUP:
        source = dataset_origin(config.task.dataset_sha256).get("dataset")
        user_supplied = (
            f"the dataset [{_escaped(source)}](https://huggingface.co/datasets/{source})"
            if source
            else "a dataset of the author"
        )
        return f"""## Training data

Pairs of a source and a target from {user_supplied}, with the SHA-256 \
`{config.task.dataset_sha256}`. Sources have {_lengths(config.task)} symbols; the vocabulary has \
{len(task.vocabulary.symbols)} symbols ({_alphabet(task)}). {summary} with \
seed {config.training.seed}, every pair with equal probability. A fixed hash of the source \
holds out one pair in {round(1 / HELD_OUT_FRACTION)}; the scores above are \
on held-out pairs only.{data}"""
    often = "every length with equal probability" + (
        " from three symbols on" if task.spec.min_length == 3 else ""
    )
    return f"""## Training data

Generated sequences of {_lengths(config.task)} symbols ({_alphabet(task)}), {often}, and the \
target that the rule of the task gives. {summary} with seed {config.training.seed}. A fixed hash \
of the sequence holds out one in {round(1 / HELD_OUT_FRACTION)}. Held-out sequences have no loss \
in training, and the scores above are on held-out sequences only.{data}"""


def _training_procedure(manifest: Manifest) -> str:
    config, command = manifest.config, training_command(manifest)
    threads = config_at_step(config.training, manifest.changes, manifest.step).num_threads or 1
    where = f"on {_count(threads, 'CPU thread')}" if manifest.device == "cpu" else "on a GPU (CUDA)"
    versions = ", ".join(
        f"{_escaped(name)} {_escaped(value)}" for name, value in manifest.versions.items()
    )
    changed = [
        each
        for each in manifest.changes
        if each.step < manifest.step and each.setting not in RESULT_NEUTRAL_SETTINGS
    ]
    by_hand = [
        f"- from step {each.step + 1:,} on, `{each.setting}` was {each.value:g}" for each in changed
    ]
    repeated = f"To reproduce the training:\n\n```\n{command}\n```" if command else ""
    if command and any(
        each.setting in ("learning_rate", "stop_at_exact_match") for each in changed
    ):
        repeated = (
            "This command has the same settings, without the changes during training:\n\n"
            f"```\n{command}\n```"
        )
    settings = [
        [f"`{key}`", _escaped(f"{value}"), field_named(key).metadata["help"]]
        for key, value in config.to_flat().items()
        if key != "architecture"
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


def _limitations(
    manifest: Manifest, task: Task, scores: Mapping[str, Any], others: list[dict[str, Any]]
) -> str:
    config = manifest.config
    positions = config.model.max_positions - 1
    points = [
        f"It performs this one task on these symbols only: {_alphabet(task)}. It has no language "
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
    allowed = "".join(
        entities.get(sign) or (f"\\{sign}" if sign in "\\`*_[]!~|$" else sign) for sign in plain
    )
    # These characters would begin a heading, a list or a rule.
    return re.sub(r"^(\d*)([-+=#]|[.)](?=\s|$))", r"\1\\\2", allowed)


def _markdown_code(text: str, *, in_table: bool = False) -> str:
    """Format any text as Markdown code."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{blank}{text}{blank}{fence}".replace("|", "\\|" if in_table else "|")


def _alphabet(task: Task) -> str:
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


def _training_alt_text(lines: list[dict[str, Any]]) -> str:
    evaluations = [line for line in lines if line.get("exact_match") is not None]
    first, last = lines[0]["loss"], lines[-1]["loss"]
    steps = _count(lines[-1]["step"], "step")
    fall = f"Training loss over {steps}, from {first:.3g} to {last:.3g}"
    score = (
        f"; final held-out exact match: {_percent(evaluations[-1]['exact_match'])}"
        if evaluations
        else ""
    )
    return fall + score


# Helpers


def _first_example(held_out: HeldOutSet, length: int, used: list[int]) -> int | None:
    """Return the first held-out sequence of this length, else of the next longer one, else any."""
    rows = [
        (int(size) < length, int(size), row)
        for row, size in enumerate(held_out.lengths_B)
        if row not in used
    ]
    return min(rows)[2] if rows else None


def _has_length(task: Task, length: int) -> bool:
    return len(build_held_out_set(task, 1, length, length).lengths_B) > 0


def _is_measured(line: Mapping[str, Any]) -> bool:
    shares = [line[name] for name in ("exact_match", "token_accuracy") if name in line]
    return (
        line["step"] > 0
        and 0 <= line["loss"] < MAX_PLAUSIBLE
        and all(0 <= share <= 1 for share in shares)
    )


class NoAliasLoader(yaml.SafeLoader):
    """A safe YAML loader without aliases, a few of which can expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def _front_matter(text: str) -> dict[str, Any]:
    match = re.match(r"\s*---\r?\n(.*?)\n---\s*(?:\n|\Z)", text[:MAX_FRONT_MATTER_BYTES], re.DOTALL)
    return yaml.load(match[1], Loader=NoAliasLoader) if match else {}
