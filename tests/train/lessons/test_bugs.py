"""Each bug changes one line of the real source, and its effect shows on a small trained"""

import inspect
import json
import random

import pytest
import torch

from playground.checkpoints.checkpoint import CheckpointError, save_checkpoint
from playground.jobs.progress import ProgressReporter
from playground.lessons import bug_comparison
from playground.lessons.bug_comparison import TrainingCopy, compare
from playground.lessons.bug_injection import (
    BUGGY_SUFFIX,
    BuggyModel,
    buggy_function,
    buggy_model,
    load_source,
    original_function,
    reference_model,
)
from playground.lessons.bugs import BUG_SETTINGS, BUGS, FIRST_SEED, RANDOM_BUG, hint, resolve_bug
from playground.lessons.service import BugResult, Measurement
from playground.models.transformer import AttentionWeights
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.response_types import problems

SMALL = {
    **BUG_SETTINGS,
    "max_length": 3,
    "n_symbols": 8,
    "d_model": 16,
    "d_ff": 32,
    "learning_rate": 2e-2,
    "max_steps": 80,
    "lr_decay_steps": 80,
}
FAILING = ("transpose", "mask-shape")


@pytest.fixture(scope="module")
def small():
    """Settings with which a copy learns in a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bug_comparison, "BUG_SETTINGS", SMALL)
        yield


@pytest.fixture(scope="module")
def compared(small):
    """The comparison of each bug, trained once."""
    results = {}

    def result(name, seed=0, steps=80):
        if (name, seed, steps) not in results:
            sent = []
            reporter = ProgressReporter(lambda *message: sent.append(message))
            results[name, seed, steps] = compare(name, seed, steps, reporter) | {
                "reported": [content[0] for kind, *content in sent if kind == "partial"]
            }
        return results[name, seed, steps]

    return result


@pytest.mark.smoke
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_one_line_of_the_real_source(name):
    source = load_source(BUGS[name])
    lines = inspect.getsource(original_function(BUGS[name].location)).splitlines()
    assert list(source.lines) == lines
    assert [
        at for at, (a, b) in enumerate(zip(source.lines, source.buggy_lines, strict=True)) if a != b
    ] == [source.changed_line]
    # with the headers
    assert (
        sum(line.startswith("+") for line in source.diff)
        == sum(line.startswith("-") for line in source.diff)
        == 2
    )


@pytest.mark.parametrize("name", BUGS)
def test_the_real_modules_are_unchanged(name):
    original = original_function(BUGS[name].location)
    before, globals_before = original.__code__, dict(original.__globals__)
    buggy_model(RunConfig.from_flat(SMALL | dict(BUGS[name].settings)).model, BUGS[name])
    assert buggy_function(BUGS[name]).__code__ is not before
    assert original_function.__wrapped__(BUGS[name].location).__code__ is before
    assert original.__globals__ == globals_before


@pytest.mark.parametrize("name", sorted(set(BUGS) - {"loud-embeddings"}))
def test_both_copies_begin_with_the_same_weights(name):
    config = RunConfig.from_flat(SMALL)
    correct, buggy = TrainingCopy(config, None), TrainingCopy(config, BUGS[name])
    pairs = zip(correct.model.parameters(), buggy.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_the_correct_copy_equals_a_plain_trainer():
    config = RunConfig.from_flat(SMALL | {"max_steps": 5, "lr_decay_steps": 80})
    training_copy, trainer = TrainingCopy(config, None), Trainer(config)
    for _ in range(5):
        training_copy.train_step()
    # written out, not fused
    assert training_copy.losses == pytest.approx([metrics.loss for metrics in trainer], abs=1e-5)


@pytest.mark.smoke
def test_a_broken_copy_cannot_be_saved(tmp_path):
    copy = TrainingCopy(RunConfig.from_flat(SMALL), BUGS["causal-mask"])
    copy.train_step()
    assert isinstance(copy.model, BuggyModel)
    with pytest.raises(CheckpointError, match="has the bug of a lesson"):
        save_checkpoint(tmp_path / "buggy", copy.trainer, [])
    assert not (tmp_path / "buggy").exists()
    correct = TrainingCopy(RunConfig.from_flat(SMALL), None)
    save_checkpoint(tmp_path / "correct", correct.trainer, [])
    assert (tmp_path / "correct" / "config.json").is_file()


@pytest.mark.parametrize("name", FAILING)
def test_a_bug_with_an_exception_reports_its_line(compared, name):
    result = compared(name)
    failure = result["buggy"]["failure"]
    assert failure["step"] == 0
    assert failure["lines"][0] == "Traceback (most recent call last):"
    # no folder of this machine
    assert not any(":\\" in line or '"/' in line for line in failure["lines"])
    source, reported = result["source"], (failure["file"], failure["line"])
    location = (source["file"] + BUGGY_SUFFIX, source["first_line"] + result["changed_line"])
    if name == "transpose":
        assert reported == location
        assert "size" in failure["lines"][-1]
    else:  # Python reports the line that raises, not the one with the bug
        assert reported != location
    assert result["correct"]["free_running"] > 0.5


def test_mask_of_wrong_rank_mixes_sequences_if_heads_equal_batch_size():
    config = RunConfig.from_flat(SMALL | {"batch_size": 2})
    buggy = buggy_model(config.model, BUGS["mask-shape"]).eval()
    sources = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
    record = AttentionWeights()
    buggy(sources, torch.tensor([[1, 5], [1, 6]]), record)
    # head 0 goes by the padding of sequence 0
    assert float(record.encoder[0][1, 0, :, 2:].detach().sum()) > 0.1


def test_without_the_causal_mask_the_loss_falls_and_nothing_is_generated(compared):
    result = compared("causal-mask")
    correct, buggy = result["correct"], result["buggy"]
    assert buggy["teacher_forced"] > 0.9 > 0.3 > buggy["free_running"]
    assert correct["free_running"] > 0.8
    assert buggy["loss"] < correct["loss"]


@pytest.mark.parametrize(("name", "gap"), [("lost-positions", 0.3), ("loud-embeddings", 0.1)])
def test_a_copy_with_odd_inputs_learns_worse(compared, name, gap):
    result = compared(name)
    assert result["buggy"]["free_running"] < result["correct"]["free_running"] - gap


def test_without_returned_positions_the_model_receives_a_bag_of_tokens():
    buggy = buggy_model(RunConfig.from_flat(SMALL).model, BUGS["lost-positions"]).eval()
    vectors = buggy.encode(torch.tensor([[3, 4, 5, 2], [5, 4, 3, 2]]))
    assert torch.allclose(vectors[0, 0], vectors[1, 2], atol=1e-6)


def test_attention_of_the_last_layer_only_changes_nothing_but_the_record(compared):
    result = compared("last-layer")
    correct, buggy = result["correct"], result["buggy"]
    assert result["curves"]["correct"] == result["curves"]["buggy"]
    for kind in ("encoder", "decoder", "cross"):
        assert (len(correct["attention"][kind]), len(buggy["attention"][kind])) == (2, 1)
        assert buggy["attention"][kind][0] == correct["attention"][kind][1]


def test_an_untrained_head_answers_all_the_same(compared):
    result = compared("untrained-head")
    assert result["buggy"]["loss"] > 0.9 * torch.tensor(result["vocab_size"]).log()
    assert result["buggy"]["free_running"] < 0.1
    assert result["buggy"]["confidence"] > 1 / result["vocab_size"]
    assert result["buggy"]["output"]


def test_large_embeddings_are_scaled_by_the_root_of_the_width():
    config = RunConfig.from_flat(SMALL | {"position_type": "sinusoidal"}).model
    weights = []
    for build in (reference_model, lambda sizes: buggy_model(sizes, BUGS["loud-embeddings"])):
        torch.manual_seed(0)
        weights.append(build(config).source_embedding.token_embedding.weight)
    torch.testing.assert_close(weights[1], weights[0] * config.d_model**0.5)


def test_progress_is_sent_during_training(compared):
    result = compared("causal-mask")
    n_steps = [len(each["curves"]["buggy"]["loss"]) for each in result["reported"]]
    assert n_steps == [10, 20, 30, 40, 50, 60, 70, 80]
    assert [step for step, *_ in result["curves"]["correct"]["evaluations"]] == [20, 40, 60, 80]


def test_a_result_has_its_type_before_and_after_the_guesses(compared):
    result = {name: each for name, each in compared("causal-mask").items() if name != "reported"}
    request = {"seed": 0, "steps": 80, "is_hidden": True}
    job = Measurement("bug", name="causal-mask", request=request, result=result)
    for job.bug_identified, job.line_identified in ((False, False), (True, False), (True, True)):
        sent = json.loads(json.dumps(job.to_json()["result"]))
        assert problems(sent, BugResult, "result") == []


def test_hints_differ_and_name_no_bug(compared):
    clues = {name: hint(compared(name)) for name in BUGS}
    silent = ("causal-mask", "lost-positions", "last-layer", "untrained-head")
    assert len({clues[name] for name in silent}) == len(silent)
    assert not any(bug.title in text for bug in BUGS.values() for text in clues.values())


def test_random_bug_is_deterministic_per_seed_and_covers_all_bugs():
    assert {resolve_bug(RANDOM_BUG, seed) for seed in range(60)} == set(BUGS)
    state = random.getstate()
    assert resolve_bug(RANDOM_BUG, FIRST_SEED) == "causal-mask"  # it raises no error
    assert resolve_bug(RANDOM_BUG, 3) == resolve_bug(RANDOM_BUG, 3)
    assert random.getstate() == state
    assert resolve_bug("transpose", 9) == "transpose"
    with pytest.raises(ValueError, match="bug is 'typo'; choose one of"):
        resolve_bug("typo", 0)
