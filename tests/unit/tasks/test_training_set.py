import re

import pytest
import torch

from playground.models.config_fields import ConfigError
from playground.tasks import EOS, PAD, TASKS, load_task
from playground.tasks.held_out import is_held_out
from playground.tasks.task import Task, make_batch
from playground.tasks.training_set import TrainingSet
from playground.training.run_config import RunConfig
from playground.training.task_config import TaskConfig
from playground.training.trainer import Trainer

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16, "eval_size": 16, "device": "cpu"}


def rows(batch):
    return [tuple(row) for row in batch.source_BS.tolist()]


def test_training_set_has_distinct_training_sequences_of_all_lengths():
    for max_length in (3, 12):  # enumerated and sampled
        task = load_task("reverse")
        training_set = TrainingSet(task, 500, 2, max_length, seed=3)
        assert len(training_set) == 500
        assert not is_held_out(training_set.sequence_NL, training_set.lengths_N).any()
        assert set(training_set.lengths_N.tolist()) == set(range(2, max_length + 1))
        full = training_set.batch(0, 1000)
        assert len(set(rows(full))) == 500
        assert full.loss_weight_B.all()
        same = TrainingSet(task, 500, 2, max_length, seed=3)
        assert torch.equal(same.sequence_NL, training_set.sequence_NL)


def test_every_epoch_has_each_sequence_once_in_another_order():
    training_set = TrainingSet(load_task("copy"), 30, 4, 4, seed=0)
    drawn = [row for index in range(6) for row in rows(training_set.batch(index, 10))]
    assert len(set(drawn[:30])) == len(set(drawn[30:])) == 30
    assert drawn[:30] != drawn[30:]
    # a batch at the end of an epoch continues with the next epoch
    assert rows(training_set.batch(1, 20)) == drawn[20:40]
    assert rows(training_set.batch(0, 10)) == drawn[:10]


@pytest.mark.parametrize("name", TASKS)
def test_a_set_has_one_to_all_training_sequences_and_no_more(name):
    task = load_task(name, 4)
    task.held_out_one_in = 2
    with pytest.raises(ConfigError, match="use at most as many, or allow longer") as error:
        TrainingSet(task, 10**6, 1, 4, seed=0)
    total = int(re.search("only ([0-9,]+)", str(error.value))[1].replace(",", ""))
    listed = (task.enumerate_sources(torch.arange(task.num_sources(n)), n) for n in range(1, 5))
    outs = [is_held_out(x, torch.full((len(x),), x.shape[1]), 2) for x in listed if len(x)]
    assert total == sum(int((~out).sum()) for out in outs)
    for n in (1, 2, total - 1, total):
        training_set = TrainingSet(task, n, 1, 4, seed=n)
        assert len(set(rows(training_set.batch(7, 1000)))) == len(training_set) == n
        assert not is_held_out(training_set.sequence_NL, training_set.lengths_N, 2).any()
    with pytest.raises(ConfigError, match=f"is {total + 1}, but of these lengths only {total} "):
        TrainingSet(task, total + 1, 1, 4, seed=0)


@pytest.mark.parametrize("max_length", [4, 5, 6, 7])  # 200,000 sources are between 5 and 6
def test_each_length_has_an_equal_part_whatever_the_number_of_sources(max_length):
    training_set = TrainingSet(load_task("copy"), 300 * max_length, 1, max_length, seed=0)
    counts = training_set.lengths_N.bincount()[1:].tolist()
    assert counts[:2] == [9, 94]  # all that exist
    assert max(counts[2:]) - min(counts[2:]) <= 1


@pytest.mark.parametrize("max_length", [12, 20])  # listed and sampled
def test_half_of_the_brackets_are_balanced_if_so_many_exist(max_length):
    task = load_task("brackets")
    training_set = TrainingSet(task, 100, max_length, max_length, seed=0)
    targets_BL, _ = task.target(training_set.sequence_NL, training_set.lengths_N)
    assert targets_BL[:, 0].bincount().tolist()[3:] == [50, 50]


def test_more_sources_than_exist_are_refused_before_any_is_drawn(monkeypatch):
    monkeypatch.setattr(Task, "sample", None)
    with pytest.raises(ConfigError, match="is 1,000,000, but of these lengths only 982,994 "):
        TrainingSet(load_task("copy", 2), 1_000_000, 1, 19, seed=0)


@pytest.mark.parametrize("one_in", [2, 4, 8, 16])
def test_the_held_out_fraction_is_that_of_the_setting(one_in):
    sequence_NL = torch.randint(3, 13, (20_000, 8))
    lengths_N = torch.full((20_000,), 8)
    held_out_N = is_held_out(sequence_NL, lengths_N, one_in)
    assert float(held_out_N.float().mean()) == pytest.approx(1 / one_in, rel=0.1)
    assert held_out_N[is_held_out(sequence_NL, lengths_N)].all()


def test_targets_without_eos_neither_train_nor_score_it():
    config = TaskConfig(min_length=4, max_length=4, predict_eos=False)
    task = config.load()
    batch = make_batch(task, torch.randint(3, 13, (5, 4)), torch.full((5,), 4))
    assert (batch.source_BS[:, -1] == EOS).all()
    assert (batch.labels_BT[:, -1] == PAD).all()
    assert (batch.labels_BT[:, :-1] >= 3).all()


@pytest.mark.parametrize(
    ("settings", "field", "message"),
    [
        ({"held_out_one_in": 3}, "held_out_one_in", "choose one of 2, 4, 8, 16"),
        ({"predict_eos": False}, "predict_eos", "make min_length equal to max_length"),
        (
            {"task": "dataset", "dataset_sha256": "0" * 64, "n_training_sources": 5},
            "task",
            "leave held_out_one_in, n_training_sources",
        ),
    ],
)
def test_impossible_splits_are_rejected(settings, field, message):
    with pytest.raises(ConfigError, match=message) as error:
        TaskConfig(**settings)
    assert error.value.field == field


def test_trainer_repeats_the_fixed_set():
    settings = {"min_length": 4, "max_length": 4, "n_training_sources": 8, "batch_size": 4}
    trainer = Trainer(
        RunConfig.from_flat(SMALL | settings | {"max_steps": 4, "predict_eos": False})
    )
    drawn = []
    while trainer.should_continue():
        drawn += rows(trainer.next_batch())
        trainer.train_step()
    assert len(set(drawn)) == 8
    assert len(drawn) == 16
