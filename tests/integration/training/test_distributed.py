"""Two real processes on this machine, started by torchrun, against one."""

import json
import signal
import subprocess
import sys

import pytest
import torch

from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.tasks.held_out import sample_training_batch
from playground.training.distributed import (
    SINGLE_PROCESS,
    DistributedContext,
    ShardedLoss,
    init_distributed,
)
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.distributed_worker import (
    data_sources,
    ends_early,
    families,
    summarize,
    uninterrupted,
)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TINY = (
    "--length 4 --d-model 16 --n-heads 2 --n-layers 1 --d-ff 16 --batch-size 16 --eval-size 32 "
    "--max-steps 3 --device cpu"
)
TOLERANCE = {"rel": 1e-5, "abs": 1e-5}


@pytest.fixture(scope="module")
def run(small_run):
    """Return a config with lengths 1 to 5: the shards of a batch have different numbers of tokens.

    Epsilon is far above rounding errors. The bias of the keys has no gradient, because softmax
    ignores it; with an epsilon of 1e-9, Adam would turn rounding errors into updates.
    """
    return small_run.replace(max_steps=12, eval_every=6, adam_eps=1e-6)


@pytest.fixture(scope="module")
def distributed(run, tmp_path_factory):
    """Run two processes; return their results, their output and the folder of checkpoints."""
    folder = tmp_path_factory.mktemp("together")
    trainer = Trainer(run)
    save_checkpoint(folder / "one", trainer, [trainer.train_step() for _ in range(5)])
    (folder / "order.json").write_text(
        json.dumps(
            {
                "fields": run.to_flat(),
                "arguments": TINY.split(),
            }
        )
    )
    command = [*TORCHRUN, "-m", "tests.support.distributed_worker", str(folder)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert completed.returncode == 0, completed.stderr
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [(result["rank"], result["size"]) for result in results] == [(0, 2), (1, 2)]
    return results, completed, folder


@pytest.fixture(scope="module")
def single_process(run, tmp_path_factory):
    """Train the same run in one process; return the result and its checkpoint."""
    folder = tmp_path_factory.mktemp("alone")
    return uninterrupted(SINGLE_PROCESS, run, folder), folder / "uncut"


def metric_values(result):
    """Return loss, gradient norm and scores of every step."""
    return [value for line in result["metrics"] for value in line if value is not None]


def assert_close(trainer, other):
    expected = dict(other.model.named_parameters())
    for name, weight in trainer.model.named_parameters():
        torch.testing.assert_close(weight, expected[name], rtol=1e-5, atol=5e-5)


@pytest.mark.smoke
def test_two_processes_train_to_the_same_weights_as_one(distributed, single_process):
    (first, second), _, folder = distributed
    expected, single_folder = single_process
    assert first["uninterrupted"] == second["uninterrupted"]
    assert metric_values(first["uninterrupted"]) == pytest.approx(
        metric_values(expected), **TOLERANCE
    )
    trainer, lines = resume_trainer(folder / "uncut")
    assert_close(trainer, resume_trainer(single_folder)[0])
    assert [line["step"] for line in lines] == list(range(1, 13))
    initial = dict(Trainer(trainer.config).model.named_parameters())
    largest_changes = {
        name: float((weight - initial[name]).detach().abs().max())
        for name, weight in trainer.model.named_parameters()
        # adds the same number to all scores of a query, so its gradient is zero
        if not name.endswith("k_proj.bias")
    }
    assert min(largest_changes.values()) > 1e-4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mean_of_sharded_losses_and_gradients_equals_full_batch(run, smoothing):
    trainer = Trainer(run)
    family, weights = trainer.model, list(trainer.model.parameters())
    batch = sample_training_batch(trainer.task, 8, 1, 5, trainer.data_generator)
    batch.loss_weight_B[:3] = 0  # one of the first four examples has a weight
    sharded_losses = [ShardedLoss(family, DistributedContext(rank, 2)) for rank in (0, 1)]
    assert [
        len(sharded_loss.context.local_shard(batch).loss_weight_B)
        for sharded_loss in sharded_losses
    ] == [4, 4]
    losses = [sharded_loss(batch, smoothing) for sharded_loss in sharded_losses]
    full_loss = family.loss(batch, smoothing)
    torch.testing.assert_close(sum(losses) / 2, full_loss)
    for actual, expected in zip(
        torch.autograd.grad(sum(losses) / 2, weights),
        torch.autograd.grad(full_loss, weights),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)
    unweighted = (
        sum(
            family.loss(sharded_loss.context.local_shard(batch), smoothing)
            for sharded_loss in sharded_losses
        )
        / 2
    )
    assert abs((unweighted - full_loss).item()) > 1e-3


def test_batch_without_weights_has_zero_loss(run):
    trainer = Trainer(run)
    batch = sample_training_batch(trainer.task, 4, 1, 5, trainer.data_generator)
    batch.loss_weight_B[:] = 0
    assert [
        ShardedLoss(trainer.model, DistributedContext(rank, 2))(batch, 0.0).item()
        for rank in (0, 1)
    ] == [0, 0]


def test_every_family_trains_on_two_processes_as_on_one(distributed, run, tmp_path):
    (first, second), _, _ = distributed
    expected = families(SINGLE_PROCESS, run, tmp_path)
    assert first["families"] == second["families"]
    assert len(expected) == 4
    for name, single_result in expected.items():
        assert metric_values(first["families"][name]) == pytest.approx(
            metric_values(single_result), **TOLERANCE
        )


def test_every_source_of_data_trains_two_processes_as_one(distributed, run, tmp_path):
    (first, second), _, _ = distributed
    expected = data_sources(SINGLE_PROCESS, run, tmp_path)
    assert first["data_sources"] == second["data_sources"]
    for name, single_result in expected.items():
        together = metric_values(first["data_sources"][name])
        assert together == pytest.approx(metric_values(single_result), **TOLERANCE), name


def test_a_run_continues_with_another_number_of_processes(distributed, single_process):
    (first, second), _, folder = distributed
    expected, single_folder = single_process
    assert first["resumed_from_single_process"] == second["resumed_from_single_process"]
    after = {"metrics": expected["metrics"][5:]}
    assert metric_values(first["resumed_from_single_process"]) == pytest.approx(
        metric_values(after), **TOLERANCE
    )
    trainer, lines = resume_trainer(folder / "cut")
    assert (trainer.step_count, len(lines)) == (5, 5)
    assert metric_values(summarize(trainer, list(trainer))) == pytest.approx(
        metric_values(after), **TOLERANCE
    )
    assert_close(trainer, resume_trainer(single_folder)[0])


def test_dropout_differs_between_the_processes_and_the_weights_do_not(distributed):
    first, second = (result["with_dropout"] for result in distributed[0])
    assert first["drawn"] != second["drawn"]
    assert (first["digest"], first["again"]) == (second["digest"], second["again"])
    assert first["metrics"] == second["metrics"]


def test_muon_with_averages_is_equal_on_both_and_resumes_exactly(distributed):
    first, second = (result["averaged_muon"] for result in distributed[0])
    assert first == second
    assert first["resumed"] == first["uncut"]


def test_reached_score_ends_all_ranks_at_the_same_step(distributed, run, tmp_path):
    (first, second), _, _ = distributed
    expected = ends_early(SINGLE_PROCESS, run, tmp_path)
    assert first["ends_early"] == second["ends_early"]
    assert first["ends_early"]["step"] == expected["step"] < 200


@pytest.mark.parametrize("failure", ["loss_is_nan_on_one_rank", "gradient_is_infinite_on_one_rank"])
def test_divergence_on_one_rank_ends_all_ranks_without_an_update(distributed, failure):
    for result in distributed[0]:
        (reason, code), step = result[failure]["ended"], result[failure]["step"]
        assert reason.startswith("step 2: loss ")
        assert "lower learning_rate" in reason
        assert (code, step, result[failure]["is_unchanged"]) == (1, 1, True)


def test_signal_to_one_rank_ends_all_after_the_same_step(distributed):
    first, second = (result["one_rank_gets_sigterm"] for result in distributed[0])
    assert first == second
    assert first["ended"] == ["stopped by a signal at step 4", 128 + signal.SIGTERM]
    assert first["steps"] == 4


def test_mismatched_ranks_are_rejected_by_every_rank(distributed):
    first, second = (result["rejected_setups"] for result in distributed[0])
    assert (first["uneven"], first["apart"]) == (second["uneven"], second["apart"])
    assert first["uneven"] == (
        "batch_size is 33, the size of the whole batch, which 2 processes cannot divide evenly; "
        "use 32 or 34, or another number of processes"
    )
    assert first["apart"].startswith("process 1 does not have the settings")
    assert all(
        result["elsewhere"].startswith("process 1 does not have the checkpoint")
        for result in (first, second)
    )


def test_training_ends_and_saves_when_another_process_is_lost(distributed):
    (first, second), _, _ = distributed
    assert "one_rank_exits" not in second
    reason, code = first["one_rank_exits"]["ended"]
    assert reason.startswith("a process failed or ended at step 3 (")
    assert (code, first["one_rank_exits"]["step"]) == (1, 3)


def test_command_prints_and_saves_on_one_rank_only(distributed):
    results, completed, folder = distributed
    assert [json.loads(line)["steps"] for line in completed.stdout.splitlines()] == [3]
    assert [result["by_command"] for result in results] == [0, 0]
    assert resume_trainer(folder / "results")[0].step_count == 3
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        "one",
        "uncut",
        "cut",
        "dropping",
        "averaged",
        "results",
        "stopped",
        "alone",
    }


def test_command_stopped_by_a_signal_saves_what_one_process_resumes(distributed):
    results, completed, folder = distributed
    assert [result["command_gets_sigterm"] for result in results] == [128 + signal.SIGTERM, 0]
    trainer, lines = resume_trainer(folder / "stopped")
    expected = f"stopped by a signal at step 6; saved to {folder / 'stopped'}"
    assert completed.stderr.count("playground:") == completed.stderr.count(expected) == 1
    assert trainer.step_count == len(lines) == 6
    assert trainer.train_step().step == 7


def test_single_process_communicates_with_no_other(run):
    assert init_distributed(torch.device("cpu")) is SINGLE_PROCESS
    assert (SINGLE_PROCESS.all_reduce_max(7), SINGLE_PROCESS.device(torch.device("cuda"))) == (
        7,
        torch.device("cuda"),
    )
    value = torch.tensor(3.0)
    assert SINGLE_PROCESS.all_reduce_sum(value) is SINGLE_PROCESS.all_reduce_mean(value) is value
    SINGLE_PROCESS.check_consistent(run.replace(batch_size=33), torch.device("cpu"))
    SINGLE_PROCESS.check_equal("name", "value")


def test_more_processes_than_gpus_are_rejected(monkeypatch):
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ValueError,
        match="torchrun started 2 processes here, but there are 1 GPUs; lower --nproc-per-node",
    ):
        init_distributed(torch.device("cuda"))
