"""The benchmark: a checkpoint, pretrained models and baselines on the same held-out examples.

All get the same metrics. Rows as they are reported, each with its "kind":

    settings   a note on the examples, the few-shot examples, the caption
    model      the metrics of a model so far (see export.ModelRow), reported after every
               example; `index` is its line, `finished` whether all examples are done
    example    a prediction: prompt, raw output, parsed tokens, whether all are correct
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field, ValidationInfo, field_validator

from playground.checkpoints.checkpoint import load_model
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter, to_user_error
from playground.training.task_config import TaskConfig

from ..loading.model_files import (
    MASKED,
    ResolvedModel,
    is_finetuned,
    kind_of,
    read_config,
    training_data_note,
)
from ..loading.pipelines import check_kind, load_and_detect_kind, load_tokenizer
from ..loading.resolver import resolve
from ..prompts import Example
from ..requests import JobRequest, ModelName
from ..tokens import check_symbols
from .examples import MAX_FEW_SHOT_EXAMPLES, ExampleSet, sample_examples
from .metrics import MetricAccumulator, exact_match
from .models import (
    BenchmarkModel,
    CheckpointModel,
    CopyBaseline,
    MajorityTargetBaseline,
    MajorityTokenBaseline,
    PretrainedCausalLM,
    PretrainedMaskedLM,
    RandomBaseline,
    find_symbol_tokens,
)

MAX_EXAMPLES = 500
MAX_MODELS = 6


class BenchmarkRequest(JobRequest):
    """A benchmark request.

    The server or the command line, never a browser, sets the folder `checkpoint`. `n` are the
    held-out examples, `shots` the few-shot examples of pretrained models, at most as many as fit.
    """

    shared_limits: ClassVar = {"n": 40}

    checkpoint: str = Field(
        min_length=1, json_schema_extra={"accepts": "a checkpoint to compare with"}
    )
    name: str = Field("", validate_default=True)
    models: list[ModelName] = Field(
        [], max_length=MAX_MODELS, json_schema_extra={"accepts": f"up to {MAX_MODELS} models"}
    )
    n: int = Field(20, ge=1, le=MAX_EXAMPLES)
    shots: int = Field(8, ge=0, le=MAX_FEW_SHOT_EXAMPLES)

    @field_validator("name")
    @classmethod
    def _default_name(cls, name: str, info: ValidationInfo) -> str:
        return (name or Path(info.data.get("checkpoint", "")).name)[:120]

    @field_validator("models")
    @classmethod
    def _remove_duplicates(cls, models: list[str]) -> list[str]:
        return list(dict.fromkeys(models))


def run_benchmark(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run the benchmark. `request`: see BenchmarkRequest.

    A model that cannot be evaluated becomes a row with the error, and the others continue.
    """
    parsed = BenchmarkRequest.parse(request)
    progress.message(f"Loading {parsed.name}")
    # more threads are slower at this size; pretrained models use more (loading/pipelines.py)
    torch.set_num_threads(1)
    manifest, model = load_model(Path(parsed.checkpoint))
    task_config = manifest.config.task
    task = task_config.load()
    example_set = sample_examples(task, parsed.n, task_config.min_length, task_config.max_length)
    if not example_set.examples:
        raise UserError(
            f"there is no held-out sequence of {task_config.max_length} tokens or fewer; choose a "
            "checkpoint of longer ones"
        )
    symbols = tuple(task.vocabulary.symbols)
    benchmark = Benchmark(parsed, example_set, task_config, symbols, progress)
    checkpoint = CheckpointModel(parsed.name, task, model)
    summary = {
        "caption": benchmark.caption(checkpoint.parameters or 0),
        "note": example_set.note,
        "request": parsed.model_dump(exclude={"checkpoint"}),
    }
    few_shot = [
        [each.source_text, each.target_text]
        for each in example_set.few_shot_examples[: parsed.shots]
    ]
    progress.row({"kind": "settings", "few_shot_examples": few_shot, **summary})
    benchmark.add_random_baseline()
    for baseline in (
        CopyBaseline(),
        MajorityTokenBaseline(),
        MajorityTargetBaseline(example_set.majority_target),
    ):
        benchmark.evaluate(baseline, note=False)
    benchmark.reference = benchmark.evaluate(checkpoint)
    for name in parsed.models:
        benchmark.evaluate_pretrained(name)
    return {"rows": benchmark.rows, **summary}


class Benchmark:
    def __init__(
        self,
        settings: BenchmarkRequest,
        example_set: ExampleSet,
        task: TaskConfig,
        symbols: Sequence[str],
        progress: ProgressReporter,
    ) -> None:
        self.settings, self.example_set, self.task = settings, example_set, task
        self.symbols, self.progress = symbols, progress
        self.examples = example_set.examples
        self.rows: list[dict[str, Any]] = []
        self.reference: MetricAccumulator | None = None  # of the checkpoint

    def caption(self, parameters: int) -> str:
        """Describe what is compared, and the limits of the comparison."""
        name, task = self.settings.name, self.task
        lengths = (
            f"{task.min_length} to {task.max_length}"
            if task.min_length < task.max_length
            else f"{task.max_length}"
        )
        return (
            f"{name} ({parameters:,} parameters) was trained on exactly this task, {task.task} "
            f"of {lengths} tokens. Pretrained models were trained on text and get up to "
            f"{self.settings.shots} few-shot examples, unless their row is marked fine-tuned. So "
            "the models do not compete on equal terms: the table shows what training on the task "
            "achieves with a small model, and how far pretraining on text carries a large one. "
            "An answer counts only as tokens separated by spaces, and its end as one token, EOS; "
            "masked models receive its length, so their EOS is always correct. Brackets: 95 % "
            "intervals (Wilson), those of tokens as if each were independent. All models get the "
            f"same sequences: p compares a model's exact matches with those of {name} in pairs "
            f"(McNemar, exact), and is not corrected for several models."
        )

    # Rows

    def new_row(self, model: BenchmarkModel) -> dict[str, Any]:
        """Return the row of a model before its first example."""
        return {
            "kind": "model",
            "index": len(self.rows),
            "model": model.name,
            "description": model.kind,
            "decoding": model.decoding,
            "caveat": model.caveat,
            "error": "",
            "error_code": "",
            "parameters": model.parameters,
            "n_few_shot": len(model.examples) or None,
            "finished": False,
            "only_this": None,
            "only_checkpoint": None,
            "p_value": None,
            **MetricAccumulator(self.task.predict_eos).compute(),
        }

    def emit(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.progress.row(row)

    def add_random_baseline(self) -> None:
        scores = RandomBaseline.scores(
            self.examples, len(self.example_set.target_symbols), self.task.predict_eos
        )
        more = {"n": len(self.examples), "finished": True}
        self.emit(self.new_row(RandomBaseline()) | scores | more)

    def evaluate(self, model: BenchmarkModel, note: bool = True) -> MetricAccumulator:
        """Evaluate a model on every example; an error ends up in its row. Return its metrics."""
        tally, row = MetricAccumulator(self.task.predict_eos), self.new_row(model)
        self.rows.append(row)
        self.progress.message(f"Evaluating {model.name}: {model.decoding}")
        try:
            for number, item in enumerate(self.examples):
                self.progress.progress(number, len(self.examples), "examples")
                entry = self.evaluate_example(model, item, number, tally)
                row |= tally.compute()
                row |= tally.compare(self.reference) if self.reference else {}
                if note:
                    self.progress.row(
                        entry | {name: row[name] for name in ("index", "model", "decoding")}
                    )
                    self.progress.row(row)
            self.progress.progress(len(self.examples), len(self.examples), "examples")
        except JobCancelled:
            raise
        except Exception as error:
            row |= _error_fields(to_user_error(error, model.name))
        row["finished"] = True
        self.progress.row(row)
        return tally

    def evaluate_example(
        self, model: BenchmarkModel, example: Example, number: int, tally: MetricAccumulator
    ) -> dict[str, Any]:
        started = time.perf_counter()
        output = model.generate(example)
        seconds = time.perf_counter() - started
        tally.add(output.parsed, example.target, seconds)
        return {
            "kind": "example",
            "number": number + 1,
            "source": example.source_text,
            "target": example.target_text,
            "prompt": output.prompt,
            "raw_output": output.raw_output,
            "prediction": output.parsed and list(output.parsed),
            "correct": exact_match(output.parsed, example.target),
            "seconds": seconds,
        }

    # Pretrained models

    def check(self, name: str, folder: Path) -> None:
        """Check that a model is a language model whose tokenizer can write the symbols."""
        check_kind("the benchmark", name, folder)
        tokenizer = load_tokenizer(name, folder)
        check_symbols(tokenizer, self.symbols, name)
        if kind_of(read_config(folder, name)) == MASKED:
            find_symbol_tokens(tokenizer, self.symbols, name)

    def evaluate_pretrained(self, name: str) -> None:
        """Resolve, load and evaluate one model; an error is stored in its row."""
        resolved: ResolvedModel | None = None
        try:
            resolved = resolve(name, self.progress, self.check)
            kind_label = training_data_note(resolved)
            pipe, kind = load_and_detect_kind(resolved, self.progress)
            # a fine-tuned model was trained on prompts without examples
            shots = 0 if is_finetuned(resolved) else self.settings.shots
            model_class = PretrainedCausalLM if kind == "causal" else PretrainedMaskedLM
            model = model_class(
                resolved.name,
                kind_label,
                pipe,
                self.symbols,
                self.progress,
                self.examples,
                self.example_set.few_shot_examples,
                shots,
            )
            self.evaluate(model)
        except JobCancelled:
            raise
        except Exception as error:
            row = {
                "model": name,
                "description": training_data_note(resolved) if resolved else "not evaluated",
                "decoding": "",
            }
            self.emit(
                self.new_row(RandomBaseline())
                | row
                | _error_fields(to_user_error(error, name))
                | {"finished": True}
            )


def _error_fields(error: UserError) -> dict[str, str]:
    return {"error": str(error), "error_code": error.code}
