"""Every mistake is one line of the real source, and really one: what it does shows on a small
trained copy.
"""

import inspect
import random

import pytest
import torch

from playground.checkpoints.checkpoint import CheckpointError, save_checkpoint
from playground.lessons import bug_comparison
from playground.lessons.bug_comparison import TrainingCopy, compare, has_future_leak
from playground.lessons.bug_injection import (
    BUGGY_SUFFIX,
    BuggyModel,
    buggy_function,
    buggy_model,
    load_sources,
    original_function,
    reference_model,
)
from playground.lessons.bugs import (
    BUG_SETTINGS,
    BUGS,
    FIRST_SEED,
    RANDOM_BUG,
    hint,
    resolve_bug,
)
from playground.models.attention import scaled_dot_product_attention
from playground.models.transformer import Transformer
from playground.tasks.held_out import build_held_out_set
from playground.training.config import RunConfig
from playground.training.trainer import Trainer

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
FAILING = ("transpose", "no-return", "mask-shape")


@pytest.fixture(scope="module")
def small():
    """Settings with which a copy learns in a second or two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bug_comparison, "BUG_SETTINGS", SMALL)
        patch.setattr(bug_comparison, "SILENT_VARIANT_STEPS", 15)
        yield


@pytest.fixture(scope="module")
def compared(small):
    """What each mistake came to; trained once."""
    results = {}

    def result(name, seed=0, steps=80):
        if (name, seed, steps) not in results:
            response = []
            results[name, seed, steps] = compare(name, seed, steps, response.append) | {
                "reported": response
            }
        return results[name, seed, steps]

    return result


@pytest.mark.smoke
@pytest.mark.parametrize("name", BUGS)
def test_a_mistake_is_one_line_of_the_real_source(name):
    source = load_sources(BUGS[name])
    lines = inspect.getsource(original_function(BUGS[name].location)).splitlines()
    assert list(source.lines) == lines
    assert [
        at for at, (a, b) in enumerate(zip(source.lines, source.wrong, strict=True)) if a != b
    ] == [source.changed_line]
    # with the headers
    assert (
        sum(line.startswith("+") for line in source.diff)
        == sum(line.startswith("-") for line in source.diff)
        == 2
    )


def test_an_unknown_source_line_is_rejected():
    mistake = BUGS["causal-mask"]
    with pytest.raises(ValueError, match=r"occurs 0 times in"):
        load_sources(
            type(mistake)(**{**vars(mistake), "correct_line": "return nothing_of_the_kind"})
        )


@pytest.mark.parametrize("name", BUGS)
def test_the_real_modules_are_unchanged(name):
    right = original_function(BUGS[name].location)
    before, globals_before = right.__code__, dict(right.__globals__)
    made = buggy_function(BUGS[name])
    config = RunConfig.from_flat(SMALL | dict(BUGS[name].settings)).model
    buggy_model(config, BUGS[name])
    assert made.__code__ is not before
    assert original_function.__wrapped__(BUGS[name].location).__code__ is before
    assert {
        key for key in right.__globals__ if right.__globals__[key] is not globals_before.get(key)
    } == set()
    assert scaled_dot_product_attention.__module__ == "playground.models.attention"


@pytest.mark.parametrize("name", sorted(set(BUGS) - {"loud-embeddings"}))
def test_both_copies_begin_with_the_same_weights(name):
    config = RunConfig.from_flat(SMALL)
    right, wrong = TrainingCopy(config, None), TrainingCopy(config, BUGS[name])
    pairs = zip(right.family.parameters(), wrong.family.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_the_correct_copy_equals_a_plain_trainer():
    config = RunConfig.from_flat(SMALL | {"max_steps": 5, "lr_decay_steps": 80})
    ours, theirs = TrainingCopy(config, None), Trainer(config)
    for _ in range(5):
        ours.train_step()
    # written out, not fused
    assert ours.losses == pytest.approx([metrics.loss for metrics in theirs], abs=1e-5)


@pytest.mark.smoke
def test_a_broken_copy_cannot_be_saved(tmp_path):
    learner = TrainingCopy(RunConfig.from_flat(SMALL), BUGS["causal-mask"])
    learner.train_step()
    assert isinstance(learner.family, BuggyModel)
    with pytest.raises(CheckpointError, match="has a bug on purpose"):
        save_checkpoint(tmp_path / "broken", learner.trainer, [])
    assert not (tmp_path / "broken").exists()
    right = TrainingCopy(RunConfig.from_flat(SMALL), None)
    save_checkpoint(tmp_path / "right", right.trainer, [])
    assert (tmp_path / "right" / "config.json").is_file()


@pytest.mark.parametrize("name", FAILING)
def test_a_bug_with_an_exception_reports_its_line(compared, name):
    result = compared(name)
    trouble = result["broken"]["trouble"]
    assert trouble["step"] == 0
    assert trouble["lines"][0] == "Traceback (most recent call last):"
    # no folder of this machine
    assert not any(":\\" in line or '"/' in line for line in trouble["lines"])
    source, named = result["source"], (trouble["file"], trouble["line"])
    place = (source["file"] + BUGGY_SUFFIX, source["first"] + result["changed"])
    if name == "transpose":
        assert named == place
        assert "size" in trouble["lines"][-1]
    else:  # python names the line that stumbles, not the one that is wrong
        assert named != place
    if name == "no-return":
        assert "NoneType" in trouble["lines"][-1]
    assert result["right"]["free_running"] > 0.5


def test_missing_transpose_is_silent_if_shapes_fit_and_leaks_future(small):
    config = RunConfig.from_flat(SMALL | {"max_length": 6, "n_symbols": 10})
    quiet = bug_comparison.silent_variant(BUGS["transpose"], config)
    assert quiet["broken"]["leaks"]
    assert not quiet["right"]["leaks"]


def test_mask_of_wrong_rank_is_silent_if_heads_equal_batch_size(compared):
    quiet = compared("mask-shape")["unnoticed"]
    assert quiet["broken"] is not None
    assert quiet["broken"]["loss"] != quiet["right"]["loss"]
    config = RunConfig.from_flat(SMALL | {"batch_size": 2})
    wrong = buggy_model(config.model, BUGS["mask-shape"]).eval()
    sources = torch.tensor([[3, 4, 5, 2], [6, 2, 0, 0]])
    record = wrong.forward_with_attention(sources, torch.tensor([[1, 5], [1, 6]]))[1]
    # head 0 goes by the padding of sequence 0
    assert float(record.encoder[0][1, 0, :, 2:].detach().sum()) > 0.1


def test_without_the_causal_mask_the_loss_falls_and_nothing_can_be_written(compared):
    result = compared("causal-mask")
    right, wrong = result["right"], result["broken"]
    assert wrong["teacher_forced"] > 0.9 > 0.3 > wrong["free_running"]
    assert right["free_running"] > 0.8
    assert wrong["loss"] < right["loss"]
    assert has_future_leak(TrainingCopy(RunConfig.from_flat(SMALL), BUGS["causal-mask"]))


def test_positions_that_are_not_handed_on_leave_a_bag_of_symbols(compared):
    result = compared("lost-positions")
    assert result["broken"]["free_running"] < result["right"]["free_running"] - 0.3
    wrong = buggy_model(RunConfig.from_flat(SMALL).model, BUGS["lost-positions"]).eval()
    vectors = wrong.encode(torch.tensor([[3, 4, 5, 2], [5, 4, 3, 2]]))
    assert torch.allclose(vectors[0, 0], vectors[1, 2], atol=1e-6)


def test_attention_of_the_last_layer_only_changes_nothing_but_the_record(compared):
    result = compared("last-layer")
    right, wrong = result["right"], result["broken"]
    assert result["curves"]["right"] == result["curves"]["broken"]
    assert (len(right["attention"]["cross"]), len(wrong["attention"]["cross"])) == (2, 1)
    assert wrong["attention"]["cross"][0] == right["attention"]["cross"][1]


def test_an_untrained_head_answers_all_the_same(compared):
    result = compared("untrained-head")
    assert result["broken"]["loss"] > 0.9 * torch.tensor(result["vocabulary"]).log()
    assert result["broken"]["free_running"] < 0.1
    assert result["broken"]["sure"] > 1 / result["vocabulary"]
    assert result["broken"]["answer"]


def test_scaled_embeddings_drown_the_sinusoids():
    config = RunConfig.from_flat(SMALL | {"position_type": "sinusoidal"}).model
    torch.manual_seed(0)
    right = reference_model(config)
    torch.manual_seed(0)
    wrong = buggy_model(config, BUGS["loud-embeddings"])
    scale = (
        wrong.source_embedding.token_embedding.weight.std()
        / right.source_embedding.token_embedding.weight.std()
    ).detach()
    assert float(scale) == pytest.approx(config.d_model**0.5, rel=1e-5)


def test_scaled_embeddings_learn_worse(compared):
    result = compared("loud-embeddings")
    assert result["broken"]["free_running"] < result["right"]["free_running"] - 0.1


def test_progress_is_sent_during_training(compared):
    result = compared("causal-mask")
    assert [each["done"] for each in result["reported"]] == [10, 20, 30, 40, 50, 60, 70, 80]
    assert len(result["reported"][1]["curves"]["broken"]["loss"]) == 20
    assert [step for step, *_ in result["curves"]["right"]["evaluations"]] == [20, 40, 60, 80]


def test_a_copy_is_scored_free_running():
    config = RunConfig.from_flat(SMALL)
    family, held_out = (
        reference_model(config.model).eval(),
        build_held_out_set(config.task.load(), 40, 1, 3),
    )
    inputs, alone = bug_comparison.exact_match(family, held_out)
    assert inputs == alone  # for a decoder that cannot look ahead, both ways agree
    assert isinstance(family, Transformer)


def test_clues_differ_and_name_no_mistake(compared):
    clues = {name: hint(compared(name)) for name in BUGS}
    assert (
        clues["causal-mask"]
        != clues["lost-positions"]
        != clues["last-layer"]
        != clues["untrained-head"]
    )
    assert "None" in clues["no-return"]
    assert not any(mistake.title in text for mistake in BUGS.values() for text in clues.values())


def test_random_bug_is_deterministic_per_seed_and_covers_all_bugs():
    assert {resolve_bug(RANDOM_BUG, seed) for seed in range(60)} == set(BUGS)
    state = random.getstate()
    assert resolve_bug(RANDOM_BUG, FIRST_SEED) == "causal-mask"  # it raises no error
    assert resolve_bug(RANDOM_BUG, 3) == resolve_bug(RANDOM_BUG, 3)
    assert random.getstate() == state
    assert resolve_bug("transpose", 9) == "transpose"
    with pytest.raises(ValueError, match="bug is 'typo'; choose one of"):
        resolve_bug("typo", 0)
