"""Two real processes on this machine, started by torchrun, against one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
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
from tests.support.app_server import ROOT, wait_for
from tests.support.distributed_worker import ends_early, families, summarize, uninterrupted

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
TINY = [
    "--length",
    "4",
    "--d-model",
    "16",
    "--n-heads",
    "2",
    "--n-layers",
    "1",
    "--d-ff",
    "16",
    "--batch-size",
    "16",
    "--eval-size",
    "32",
]
CLOSE = {"rel": 1e-5, "abs": 1e-5}


@pytest.fixture(scope="module")
def run(small_run):
    """Lengths 1 to 5, so that the halves of a batch hold different numbers of tokens. Epsilon is
    well above rounding: a key's bias has no
    gradient (softmax does not see it), and with 1e-9 Adam would make an update of the rounding that
    is there instead.
    """
    return small_run.replace(max_steps=12, eval_every=6, adam_eps=1e-6)


@pytest.fixture(scope="module")
def saw(run, tmp_path_factory):
    """The states of two processes, their output, and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("together")
    trainer = Trainer(run)
    save_checkpoint(folder / "one", trainer, [trainer.train_step() for _ in range(5)])
    (folder / "order.json").write_text(
        json.dumps(
            {"fields": run.to_flat(), "arguments": [*TINY, "--max-steps", "3", "--device", "cpu"]}
        )
    )
    command = [*TORCHRUN, "-m", "tests.support.distributed_worker", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    both = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [(each["rank"], each["size"]) for each in both] == [(0, 2), (1, 2)]
    return both, done, folder


@pytest.fixture(scope="module")
def alone(run, tmp_path_factory):
    """The same run in one process, and its checkpoint."""
    folder = tmp_path_factory.mktemp("alone")
    return uninterrupted(SINGLE_PROCESS, run, folder), folder / "uncut"


def numbers(result):
    """Return loss, gradient norm and scores of every step."""
    return [value for line in result["metrics"] for value in line if value is not None]


def assert_close(trainer, other):
    theirs = dict(other.model.named_parameters())
    for name, weight in trainer.model.named_parameters():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-5, atol=5e-5)


@pytest.mark.smoke
def test_two_processes_train_to_the_same_weights_as_one(saw, alone):
    (first, second), _, folder = saw
    expected, of_one = alone
    assert first["uninterrupted"] == second["uninterrupted"]
    assert numbers(first["uninterrupted"]) == pytest.approx(numbers(expected), **CLOSE)
    trainer, lines = resume_trainer(folder / "uncut")
    assert_close(trainer, resume_trainer(of_one)[0])
    assert [line["step"] for line in lines] == list(range(1, 13))
    began = dict(Trainer(trainer.config).model.named_parameters())
    moved = {
        name: float((weight - began[name]).detach().abs().max())
        for name, weight in trainer.model.named_parameters()
        # it adds the same number to all scores of a query, so its gradient is zero
        if not name.endswith("k_proj.bias")
    }
    assert min(moved.values()) > 1e-4


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mean_of_sharded_losses_and_gradients_equals_full_batch(run, smoothing):
    trainer = Trainer(run)
    family, weights = trainer.model, list(trainer.model.parameters())
    batch = sample_training_batch(trainer.task, 8, 1, 5, trainer.data_generator)
    batch.loss_weight_B[:3] = 0  # of the first four rows one trains
    shares = [ShardedLoss(family, DistributedContext(rank, 2)) for rank in (0, 1)]
    assert [len(share.context.local_shard(batch).loss_weight_B) for share in shares] == [4, 4]
    parts = [share(batch, smoothing) for share in shares]
    whole = family.loss(batch, smoothing)
    torch.testing.assert_close(sum(parts) / 2, whole)
    for ours, theirs in zip(
        torch.autograd.grad(sum(parts) / 2, weights),
        torch.autograd.grad(whole, weights),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    plain = sum(family.loss(share.context.local_shard(batch), smoothing) for share in shares) / 2
    assert abs((plain - whole).item()) > 1e-3


def test_a_batch_in_which_nothing_trains_has_no_loss(run):
    trainer = Trainer(run)
    batch = sample_training_batch(trainer.task, 4, 1, 5, trainer.data_generator)
    batch.loss_weight_B[:] = 0
    assert [
        ShardedLoss(trainer.model, DistributedContext(rank, 2))(batch, 0.0).item()
        for rank in (0, 1)
    ] == [0, 0]


def test_every_family_trains_on_two_processes_as_on_one(saw, run, tmp_path):
    (first, second), _, _ = saw
    expected = families(SINGLE_PROCESS, run, tmp_path)
    assert first["families"] == second["families"]
    assert len(expected) == 4
    for name, reported_by_one in expected.items():
        assert numbers(first["families"][name]) == pytest.approx(numbers(reported_by_one), **CLOSE)


def test_two_processes_resume_to_the_bits_of_the_uncut_run(saw):
    for each in saw[0]:
        assert each["resumed"] == each["uninterrupted"]


def test_a_run_continues_with_another_number_of_processes(saw, alone):
    (first, second), _, folder = saw
    expected, of_one = alone
    assert first["resumed_from_single_process"] == second["resumed_from_single_process"]
    after = {"metrics": expected["metrics"][5:]}
    assert numbers(first["resumed_from_single_process"]) == pytest.approx(numbers(after), **CLOSE)
    trainer, lines = resume_trainer(folder / "cut")
    assert (trainer.step_count, len(lines)) == (5, 5)
    assert numbers(summarize(trainer, list(trainer))) == pytest.approx(numbers(after), **CLOSE)
    assert_close(trainer, resume_trainer(of_one)[0])


def test_dropout_differs_between_the_processes_and_the_weights_do_not(saw):
    first, second = (each["with_dropout"] for each in saw[0])
    assert first["drawn"] != second["drawn"]
    assert (first["digest"], first["again"]) == (second["digest"], second["again"])
    assert first["metrics"] == second["metrics"]


def test_muon_with_averages_is_equal_on_both_and_resumes_exactly(saw):
    first, second = (each["averaged_muon"] for each in saw[0])
    assert first == second
    assert first["resumed"] == first["uncut"]


def test_a_score_that_is_reached_ends_all_at_the_same_step(saw, run, tmp_path):
    (first, second), _, _ = saw
    expected = ends_early(SINGLE_PROCESS, run, tmp_path)
    assert first["ends_early"] == second["ends_early"]
    assert first["ends_early"]["step"] == expected["step"] < 200


@pytest.mark.parametrize("what", ["loss_is_nan_on_one_rank", "gradient_is_infinite_on_one_rank"])
def test_divergence_on_one_rank_ends_all_without_an_update(saw, what):
    for each in saw[0]:
        (reason, code), step = each[what]["ended"], each[what]["step"]
        assert reason.startswith("step 2: loss ")
        assert "lower learning_rate" in reason
        assert (code, step, each[what]["is_unchanged"]) == (1, 1, True)


def test_a_signal_to_one_ends_all_after_the_same_step(saw):
    first, second = (each["one_rank_gets_sigterm"] for each in saw[0])
    assert first == second
    assert first["ended"] == ["stopped by a signal at step 4", 128 + signal.SIGTERM]
    assert first["steps"] == 4


def test_mismatched_ranks_are_rejected_by_every_rank(saw):
    first, second = (each["rejected_setups"] for each in saw[0])
    assert (first["uneven"], first["apart"]) == (second["uneven"], second["apart"])
    assert first["uneven"] == (
        "batch_size is 33, the size of the whole batch, which 2 processes cannot divide evenly; "
        "use 32 or 34, or another number of processes"
    )
    assert first["apart"].startswith("process 1 does not have the settings")
    assert all(
        each["elsewhere"].startswith("process 1 does not have the checkpoint")
        for each in (first, second)
    )


def test_training_ends_and_saves_when_another_process_is_lost(saw):
    (first, second), _, _ = saw
    assert "one_rank_exits" not in second
    reason, code = first["one_rank_exits"]["ended"]
    assert reason.startswith("a process failed or ended at step 3 (")
    assert (code, first["one_rank_exits"]["step"]) == (1, 3)


def test_the_command_speaks_with_one_voice_and_writes_once(saw):
    _, done, folder = saw
    assert [json.loads(line)["steps"] for line in done.stdout.splitlines()] == [3]
    assert "playground" not in done.stderr
    assert resume_trainer(folder / "results")[0].step_count == 3
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {
        "one",
        "uncut",
        "cut",
        "dropping",
        "averaged",
        "results",
        "alone",
    }


def catches(process, number):
    """Return whether a process has its own handler of a signal."""
    masks = dict(
        line.split(":\t")
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if line.startswith("Sig")
    )
    return int(masks["SigCgt"], 16) >> (number - 1) & 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into Linux's /proc")
def test_a_signal_to_torchrun_saves_a_checkpoint_that_one_process_takes_up(saw, tmp_path):
    train = [
        "-m",
        "playground",
        "train",
        "--resume",
        str(saw[2] / "results"),
        "--max-steps",
        "100000",
        "--out",
        str(tmp_path / "cut"),
    ]
    with subprocess.Popen(
        [*TORCHRUN, *train], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        torchrun = psutil.Process(run.pid)
        try:
            wait_for(
                lambda: (
                    len(ranks := torchrun.children()) == 2
                    and all(catches(rank, signal.SIGTERM) for rank in ranks)
                ),
                120,
            )
            run.send_signal(signal.SIGTERM)
            printed, message = run.communicate(timeout=60)
        finally:
            for process in (*torchrun.children(), run) if run.poll() is None else ():
                process.kill()
    trainer, lines = resume_trainer(tmp_path / "cut", max_steps=100_000)
    assert printed == ""
    cut = f"stopped by a signal at step {trainer.step_count}; saved to {tmp_path / 'cut'}"
    assert message.count("stopped by a signal") == message.count(cut) == 1
    assert len(lines) == trainer.step_count > 3
    assert trainer.train_step().step == trainer.step_count == len(lines) + 1


def test_a_single_process_communicates_with_none(run):
    assert init_distributed(torch.device("cpu")) is SINGLE_PROCESS
    assert (SINGLE_PROCESS.all_reduce_max(7), SINGLE_PROCESS.device(torch.device("cuda"))) == (
        7,
        torch.device("cuda"),
    )
    value = torch.tensor(3.0)
    assert SINGLE_PROCESS.all_reduce_sum(value) is SINGLE_PROCESS.all_reduce_mean(value) is value
    SINGLE_PROCESS.check_consistent(run.replace(batch_size=33), torch.device("cpu"))
    SINGLE_PROCESS.check_equal("anything", "at all")


def test_more_processes_than_gpus_are_rejected(monkeypatch):
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ValueError,
        match="torchrun started 2 processes here, but there are 1 GPUs; lower --nproc-per-node",
    ):
        init_distributed(torch.device("cuda"))
