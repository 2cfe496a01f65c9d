"""Captured steps, with a replaced capture that runs the captured code again."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.tasks import TASKS
from playground.training import cuda_graphs
from playground.training import trainer as trainer_module
from playground.training.config import RunConfig
from playground.training.cuda_graphs import WARMUP_STEPS, CudaGraphSteps
from playground.training.presets import architecture_preset
from playground.training.trainer import Trainer, TrainingDivergedError
from tests.support.trainer_fingerprint import fingerprint

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
    "max_length": 8,
    "batch_size": 16,
    "max_steps": 40,
    "eval_every": 7,
    "eval_size": 50,
    "dropout": 0.1,
}
# a rate that float32 holds exactly
EXACT = {"lr_schedule": "constant", "warmup_steps": 0, "learning_rate": 2**-7}


def identity_capture(work, generators):
    return work


def trainer_with_graphs(capture=identity_capture, **values):
    trainer = Trainer(RunConfig.from_flat(SMALL | values), pack=False)
    steps = CudaGraphSteps(
        trainer.model,
        trainer.optimizer,
        trainer.config.training,
        trainer._next_batch,
        trainer.device,
        (),
        capture,
        trainer.average,
    )
    trainer._build_cuda_graph = lambda: steps
    trainer.cuda_graph = steps
    return trainer


def trained(trainer, most=9):
    metrics = []
    while trainer.should_continue():
        metrics += trainer.train_steps(most)
    return metrics


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"optimizer": "adamw", "weight_decay": 0.01},
        {"optimizer": "sgd"},
        {"max_grad_norm": 0.0},
        {"precision": "bfloat16"},
        {"optimizer": "muon"},
        {"optimizer": "muon", "weight_averaging": True, "muon_lr_ratio": 8.0},
    ],
)
def test_steps_in_a_row_are_the_same_steps_to_the_bit(values):
    values = EXACT | {"max_steps": 20} | values
    plain = Trainer(RunConfig.from_flat(SMALL | values), pack=False)
    one_by_one = list(plain)
    expected = fingerprint(plain)
    trainer = trainer_with_graphs(**values)
    metrics = trained(trainer)
    assert fingerprint(trainer) == expected
    result = [
        (
            m.step,
            m.loss,
            m.grad_norm,
            m.learning_rate,
            m.exact_match,
            m.token_accuracy,
            m.eval_size,
        )
        for m in metrics
    ]
    assert result == [
        (
            m.step,
            m.loss,
            m.grad_norm,
            m.learning_rate,
            m.exact_match,
            m.token_accuracy,
            m.eval_size,
        )
        for m in one_by_one
    ]


def test_a_falling_learning_rate_differs_by_its_rounding_to_float32_alone():
    one_by_one = list(Trainer(RunConfig.from_flat(SMALL), pack=False))
    metrics = trained(trainer_with_graphs())
    assert [m.learning_rate for m in metrics] == [m.learning_rate for m in one_by_one]
    assert [m.loss for m in metrics] == pytest.approx([m.loss for m in one_by_one], rel=1e-4)


def test_a_row_ends_where_something_is_due():
    trainer = trainer_with_graphs(**EXACT)
    trainer.schedule_change("learning_rate", 2**-6, 10)
    # a look, the change, the next two looks
    assert [len(trainer.train_steps(100)) for _ in range(4)] == [7, 3, 4, 7]
    assert trainer.train_steps(3)[-1].step == 24
    assert trained(trainer, 100)[-1].step == 40
    assert not trainer.should_continue()


def test_a_change_counts_from_its_step_on():
    def rates(trainer):
        trainer.schedule_change("learning_rate", 2**-6, 10)
        return [m.learning_rate for m in trained(trainer)], fingerprint(trainer)

    plain = Trainer(RunConfig.from_flat(SMALL | EXACT), pack=False)
    assert rates(plain) == rates(trainer_with_graphs(**EXACT))


def test_no_row_is_longer_than_the_ring(monkeypatch):
    ring = 24
    for module in (cuda_graphs, trainer_module):
        assert ring < module.RING_SIZE
        monkeypatch.setattr(module, "RING_SIZE", ring)
    trainer = trainer_with_graphs(
        **EXACT
        | {
            "max_steps": 2 * ring + 1,
            "eval_every": 10_000,
            "batch_size": 1,
            "d_model": 4,
            "n_layers": 1,
            "max_length": 3,
        }
    )
    assert [len(trainer.train_steps(10_000)) for _ in range(3)] == [ring, ring, 1]


@pytest.mark.parametrize("bad", [1, 2, 5, 7])
def test_non_finite_update_and_later_steps_change_no_weights(bad):
    def spoil(trainer):
        draw, count = trainer.cuda_graph.next_batch, itertools.count(1)

        def drawn():
            batch = draw()
            if next(count) == bad:
                batch.loss_weight_B[:] = torch.nan
            return batch

        trainer.cuda_graph.next_batch = drawn
        return trainer

    trainer = spoil(trainer_with_graphs(**EXACT))
    before = trainer_with_graphs(**EXACT)
    expected = [metrics.loss for _ in range(bad - 1) for metrics in before.train_steps()]
    weights = {name: weight.clone() for name, weight in before.model.state_dict().items()}
    trainer = spoil(trainer_with_graphs(**EXACT))
    if bad > 1:
        assert [metrics.loss for metrics in trainer.train_steps(7)] == expected
    with pytest.raises(
        TrainingDivergedError, match=f"step {bad}: loss nan.*The weights of step {bad - 1} are kept"
    ):
        trainer.train_steps(7)
    assert trainer.step_count == bad - 1
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    assert all(int(state["step"]) == bad - 1 for state in trainer.optimizer.state.values())
    trainer.train_steps(7)  # nothing of it is left to spoil the next row
    assert trainer.step_count > bad - 1


def test_an_uncapturable_step_runs_uncaptured():
    def refuse(work, generators):
        work()  # as far as it got
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    generator = torch.Generator()
    trainer = trainer_with_graphs(**EXACT)
    weights = fingerprint(trainer)
    trainer = trainer_with_graphs(**EXACT)
    assert fingerprint(trainer) == weights
    trainer.cuda_graph.capture, trainer.cuda_graph.generators = (
        lambda work, generators: refuse(lambda: None, generators),
        [generator],
    )
    assert len(trained(trainer)) == 40
    assert trainer.cuda_graph.capture_error == "operation not permitted when stream is capturing"
    plain = trainer_with_graphs(**EXACT)
    trained(plain)
    assert fingerprint(plain) == fingerprint(trainer)
    assert plain.cuda_graph.capture_error == ""


def test_the_first_steps_warm_up_and_only_then_is_one_recorded():
    recorded = []

    def capture(work, generators):
        recorded.append(generators)
        assert all(group.get("capturable", True) for group in trainer.optimizer.param_groups)
        return work

    trainer = trainer_with_graphs(capture, **EXACT)
    trainer.cuda_graph.generators = [trainer.data_generator]
    trainer.train_steps(WARMUP_STEPS)
    assert recorded == []
    trainer.train_steps(2)
    trainer.train_steps(2)
    assert recorded == [[trainer.data_generator]]
    assert not any(group["capturable"] for group in trainer.optimizer.param_groups)


def test_a_resumed_run_is_bit_equal(tmp_path):
    uninterrupted = trainer_with_graphs(**EXACT)
    trained(uninterrupted)
    expected = fingerprint(uninterrupted)
    first = trainer_with_graphs(**EXACT)
    metrics = first.train_steps(7) + first.train_steps(4)
    save_checkpoint(tmp_path / "saved", first, metrics, None)
    second, _ = resume_trainer(tmp_path / "saved")
    second.cuda_graph = CudaGraphSteps(
        second.model,
        second.optimizer,
        second.config.training,
        second._next_batch,
        second.device,
        (),
        identity_capture,
    )
    trained(second)
    assert fingerprint(second) == expected


class Silent(TorchDispatchMode):
    """Forbid what a CUDA graph cannot capture, such as shapes that depend on values."""

    REQUESTING = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "unique",
        "equal",
        "item",
        "is_nonzero",
        "repeat_interleave.Tensor",
    )
    MAKING = (
        "arange",
        "zeros",
        "ones",
        "full",
        "empty",
        "rand",
        "eye",
        "tensor",
        "scalar_tensor",
        "randperm",
    )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removeprefix("aten.")
        plain = name.split(".")[0].lstrip("_")
        assert not name.startswith(self.REQUESTING), f"{name} makes the host wait"
        if plain in ("index", "index_put", "index_put_"):
            assert not any(each is not None and each.dtype == torch.bool for each in args[1]), (
                f"{name} by a mask: its size is a value"
            )
        if plain in self.MAKING or plain.startswith("randint"):
            assert (kwargs or {}).get("device") is not None, (
                f"{name} without a device lands on the processor"
            )
        assert name != "lift_fresh.default", "a tensor of Python numbers has to be copied over"
        return func(*args, **(kwargs or {}))


def silent_steps(config):
    trainer = Trainer(config)
    steps = CudaGraphSteps(
        trainer.model,
        trainer.optimizer,
        config.training,
        trainer._next_batch,
        trainer.device,
        (),
        identity_capture,
    )
    steps.run([1e-3] * (WARMUP_STEPS + 1))
    # the optimizer is torch's, and reads the rate on a processor
    steps.optimizer.step = lambda: None
    with Silent():
        steps._parse_step()


def test_muon_and_the_average_do_not_read_from_the_device():
    config = RunConfig.from_flat(SMALL | {"optimizer": "muon", "weight_averaging": True})
    steps = trainer_with_graphs(**config.to_flat()).cuda_graph
    steps.run([1e-3] * (WARMUP_STEPS + 1))
    steps.optimizer.adam.step = lambda: None  # torch's, which reads the rate on a CPU
    with Silent():
        steps._parse_step()


@pytest.mark.parametrize("task", TASKS)
def test_no_task_synchronizes_the_device(task):
    silent_steps(RunConfig.from_flat(SMALL | {"task": task, "n_layers": 1, "min_length": 3}))


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_no_architecture_synchronizes_the_device(family, monkeypatch):
    # transformers leaves its own questions out while a graph is being captured, and finds out about
    # that by this function
    monkeypatch.setattr("transformers.utils.import_utils.is_cuda_stream_capturing", lambda: True)
    sizes = {"d_model": 16} if family == "recurrent" else {"d_model": 16, "d_ff": 32, "n_heads": 2}
    silent_steps(architecture_preset(family, batch_size=8, **sizes))


@pytest.mark.parametrize(
    "positions", ["none", "sinusoidal", "rope", "alibi", "t5", "randomized", "learned-from-end"]
)
def test_no_position_type_synchronizes_the_device(positions):
    silent_steps(RunConfig.from_flat(SMALL | {"position_type": positions}))


@pytest.mark.parametrize(
    "values",
    [
        {
            "norm_placement": "post",
            "norm_type": "rms",
            "activation": "swiglu",
            "n_kv_heads": 1,
            "label_smoothing": 0.1,
        }
    ],
)
def test_no_component_synchronizes_the_device(values):
    silent_steps(RunConfig.from_flat(SMALL | values))
