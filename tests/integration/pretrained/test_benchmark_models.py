"""Scores of models with known outputs."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from playground.checkpoints.checkpoint import load_model
from playground.errors import UserError
from playground.evaluation import evaluate
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained.benchmark.examples import sample_examples
from playground.pretrained.benchmark.job import Benchmark, BenchmarkRequest
from playground.pretrained.benchmark.models import (
    CheckpointModel,
    CopyBaseline,
    MajorityTargetBaseline,
    MajorityTokenBaseline,
    PretrainedCausalLM,
    PretrainedMaskedLM,
    RandomBaseline,
)
from playground.pretrained.finetuning.seq2seq import PromptTemplate
from playground.pretrained.loading.model_files import CAUSAL
from playground.pretrained.loading.pipelines import open_pipeline
from playground.pretrained.loading.resolver import resolve
from playground.pretrained.prompts import Example, few_shot_prompt
from playground.pretrained.tokens import check_symbols
from playground.tasks import EOS, load_task
from playground.tasks.held_out import build_held_out_set
from playground.training.task_config import TaskConfig
from playground.training.trainer import Trainer
from tests.support.handcrafted_models import reversing_model_without_eos

DIGITS = "0123456789"
TASK = load_task("reverse", 10)
SAMPLE = sample_examples(TASK, 25, 3, 3)
EXAMPLES, FEW_SHOT = SAMPLE.examples, SAMPLE.few_shot_examples


def build_benchmark(sample=SAMPLE, report=None):
    fields = {"checkpoint": "", "name": "scratch", "models": [], "shots": 4}
    request = BenchmarkRequest.model_construct(n=len(sample.examples), **fields)
    task = TaskConfig(min_length=3, max_length=3)
    return Benchmark(request, sample, task, DIGITS, report or ProgressReporter())


class StubPipe:
    """A text-generation pipeline that derives its output from the last input of the prompt."""

    def __init__(self, tokenizer, rule, positions=512):
        torch.manual_seed(0)
        self.tokenizer, self.rule, self.calls = tokenizer, rule, []
        sizes = {"n_positions": positions, "n_embd": 8, "n_layer": 1, "n_head": 1}
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).eval()

    def __call__(self, prompt, **settings):
        self.calls.append((prompt, settings))
        source = prompt.rsplit("Input: ", 1)[1].removesuffix("\nOutput:").split(" ")
        return [{"generated_text": self.rule(source)}]


@pytest.fixture(scope="module")
def tokenizer(tiny_gpt2):
    return AutoTokenizer.from_pretrained(tiny_gpt2)


@pytest.fixture(scope="module")
def causal(tiny_gpt2):
    model = resolve(tiny_gpt2, ProgressReporter())
    return open_pipeline("text-generation", model, ProgressReporter())


@pytest.fixture(scope="module")
def masked(tiny_bert):
    return open_pipeline("fill-mask", resolve(tiny_bert, ProgressReporter()), ProgressReporter())


def causal_lm(pipe, shots=4, examples=EXAMPLES, few_shot=FEW_SHOT, report=None):
    return PretrainedCausalLM(
        "stub", "pretrained", pipe, DIGITS, report or ProgressReporter(), examples, few_shot, shots
    )


def masked_lm(pipe, symbols=DIGITS, items=EXAMPLES, few_shot=FEW_SHOT, shots=4):
    return PretrainedMaskedLM(
        "stub", "pretrained", pipe, symbols, ProgressReporter(), items, few_shot, shots
    )


OUTPUT_RULES = {
    "correct": lambda source: " " + " ".join(reversed(source)) + "\n\nInput:",
    "copies": lambda source: " " + " ".join(source) + "\n",
    "text after": lambda source: f" {' '.join(reversed(source))} is my guess, because\n",
    "empty": lambda source: "\n",
    "joined": lambda source: " " + "".join(reversed(source)) + "\n",
    "extra token": lambda source: " " + " ".join([*reversed(source), "0"]) + "\n",
}


@pytest.mark.smoke
def test_perfect_copying_and_invalid_outputs_score_as_expected(tokenizer):
    result = {}
    for name, rule in OUTPUT_RULES.items():
        tally = build_benchmark().evaluate(causal_lm(StubPipe(tokenizer, rule)))
        result[name] = tally.compute()
    copied = build_benchmark().evaluate(CopyBaseline()).compute()
    for score in ("exact_match", "token_accuracy", "token_accuracy_low", "n", "n_tokens"):
        assert result["copies"][score] == copied[score], score
    assert copied["exact_match"] == 0
    assert copied["token_accuracy"] == 0.5  # the middle of three digits and EOS are correct
    expected = {"correct": (1, 1), "text after": (0, 0), "empty": (0, 0), "joined": (0, 0)}
    for name, scores in (expected | {"extra token": (0, 3 / 4)}).items():
        assert (result[name]["exact_match"], result[name]["token_accuracy"]) == scores, name


def test_the_prompt_matches_the_request(tokenizer):
    pipe = StubPipe(tokenizer, OUTPUT_RULES["correct"])
    stub = causal_lm(pipe, shots=2)
    answer = stub.generate(EXAMPLES[0])
    prompt, settings = pipe.calls[0]
    assert prompt == answer.prompt == few_shot_prompt(EXAMPLES[0], FEW_SHOT[:2])
    assert settings["do_sample"] is False
    assert settings["max_new_tokens"] == 3 + 4


def test_examples_are_limited_by_positions_with_a_note(tokenizer):
    stub = causal_lm(StubPipe(tokenizer, OUTPUT_RULES["correct"], positions=80), shots=32)
    tokens = len(tokenizer(few_shot_prompt(EXAMPLES[0], stub.examples))["input_ids"])
    assert 0 < len(stub.examples) < 32
    assert tokens + stub.max_new_tokens <= 80
    assert f"{len(stub.examples)} few-shot examples instead of 32" in stub.caveat
    assert not causal_lm(StubPipe(tokenizer, OUTPUT_RULES["correct"]), shots=2).caveat
    with pytest.raises(UserError, match="has 8 positions"):
        causal_lm(StubPipe(tokenizer, OUTPUT_RULES["correct"], positions=8), shots=2)


def test_checkpoint_prediction_without_eos_is_wrong(digits):
    _, family = load_model(digits)
    for tail, is_correct in (([EOS], True), ([9], False), ([0], False)):
        numbers = TASK.vocabulary.encode("4 1 3") + tail
        stub = SimpleNamespace(
            generate=lambda source, max_tokens, numbers=numbers: torch.tensor([numbers]),
            config=family.config,
        )
        scratch = CheckpointModel("stub", TASK, family)
        scratch.model = stub
        output = scratch.generate(Example(("3", "1", "4"), ("4", "1", "3")))
        assert (output.parsed == ("4", "1", "3")) is is_correct


def test_token_accuracy_of_a_checkpoint_equals_that_of_its_evaluation(small_run):
    trainer = Trainer(small_run.replace(max_steps=30))
    for _ in trainer:
        pass
    family = trainer.model.eval()  # half trained
    held_out = build_held_out_set(TASK, 40, 3, 3)
    sample = sample_examples(TASK, 40, 3, 3)
    examples = [
        Example(*(tuple(TASK.vocabulary.decode(row[row > EOS].tolist())) for row in pair))
        for pair in zip(held_out.batch.source_BS, held_out.batch.target_BT, strict=True)
    ]
    benchmark = build_benchmark(replace(sample, examples=tuple(examples)))
    actual = benchmark.evaluate(CheckpointModel("half", TASK, family)).compute()
    expected = evaluate(family, held_out)
    assert 0 < expected.token_accuracy < 1
    for score in ("exact_match", "token_accuracy"):
        assert actual[score] == pytest.approx(getattr(expected, score))


def test_a_perfect_checkpoint_without_eos_scores_full_marks():
    subject = reversing_model_without_eos()
    model = CheckpointModel("perfect", subject.task, subject.model)
    assert "it gets the length of each target" in model.caveat
    assert not CheckpointModel("with EOS", TASK, subject.model).caveat
    benchmark = build_benchmark(sample_examples(subject.task, 50, 5, 5))
    tally = benchmark.evaluate(model)
    assert tally.exact == tally.n == 50


def test_the_baselines_match_their_description():
    item = Example(("3", "1", "1", "4"), ("4", "1", "1", "3"))
    assert CopyBaseline().generate(item).parsed == item.source
    assert MajorityTokenBaseline().generate(item).parsed == ("1", "1", "1", "1")
    chance = RandomBaseline.scores([item], 10, has_eos=True)
    assert chance == {
        "exact_match": pytest.approx(1e-4),
        "token_accuracy": pytest.approx((4 * 0.1 + 1) / 5),
    }


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "low", "high", "symbols", "scores"),
    [
        ("parity", 1, 8, DIGITS, (0.5, 0.75)),
        ("brackets", 4, 16, "01()", (0.5, 0.75)),
        ("reverse", 3, 3, DIGITS, (pytest.approx(1e-3), pytest.approx(1.3 / 4))),
    ],
)
def test_random_baseline_uses_the_symbols_of_the_targets(name, low, high, symbols, scores):
    table = Benchmark(
        BenchmarkRequest.model_construct(checkpoint="", name="scratch", models=[], n=40, shots=4),
        sample_examples(load_task(name), 40, low, high),
        TaskConfig(task=name, min_length=low, max_length=high),
        symbols,
        ProgressReporter(),
    )
    table.add_random_baseline()
    assert (table.rows[0]["exact_match"], table.rows[0]["token_accuracy"]) == scores


def test_majority_baseline_does_not_know_the_evaluated_targets():
    targets = {sample_examples(TASK, n, 3, 3).majority_target for n in (1, 5, 40)}
    assert len(targets) == 1  # it depends on training sequences only
    assert sample_examples(load_task("parity"), 40, 1, 8).majority_target in {("0",), ("1",)}
    baseline = MajorityTargetBaseline(targets.pop())
    held_out = sample_examples(TASK, 1000, 3, 3).examples
    assert all(baseline.generate(item).parsed == baseline.target for item in held_out)


def test_tokenizer_that_merges_symbols_is_reported(masked):
    upper = [Example(("a", "B"), ("B", "a"))]
    stub = masked_lm(masked, "abAB", upper, [])
    assert "maps A B to the same token" in stub.caveat
    with pytest.raises(UserError, match="no single token for '☃'"):
        masked_lm(masked, "a☃", upper, [])


def test_symbol_that_holds_a_special_token_is_reported(causal, masked, tokenizer):
    symbols = ("a", "x<|endoftext|>", "[MASK]")
    with pytest.raises(UserError, match=r"stub takes the symbol x<\|endoftext\|> for a special"):
        check_symbols(causal.tokenizer, symbols, "stub")
    with pytest.raises(UserError, match=r"stub takes the symbol \[MASK\] for a special"):
        check_symbols(masked.tokenizer, symbols, "stub")
    with pytest.raises(UserError, match="fine takes the symbol x"):
        PromptTemplate.of(tokenizer, symbols, "fine", CAUSAL)


def test_cancelled_job_ends_during_generation(causal):
    cancelled = threading.Event()
    stub = causal_lm(causal, report=ProgressReporter(cancelled=cancelled))
    cancelled.set()
    with pytest.raises(JobCancelled):
        stub.generate(EXAMPLES[0])


def test_error_during_benchmark_is_recorded_and_scores_remain(tokenizer):
    pipe = StubPipe(tokenizer, OUTPUT_RULES["correct"])

    def run_out_of_memory(source):
        if len(pipe.calls) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return OUTPUT_RULES["correct"](source)

    pipe.rule = run_out_of_memory
    table = build_benchmark()
    tally = table.evaluate(causal_lm(pipe))
    assert tally.n == 5
    row = table.rows[0]
    assert (row["n"], row["exact_match"]) == (5, 1.0)
    assert row["error"].startswith("stub: there is not enough memory")
