"""Apple's GPU (mps), without one: a device that computes on the CPU and has no float64.

It shows that a run there uses the same operations and random numbers, and stores what it restores.
"""

import os

import pytest
import torch
from torch.overrides import TorchFunctionMode

from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.checkpoints.manifest import read_manifest
from playground.models.config_fields import ConfigError
from playground.training.trainer import Trainer, resolve_device

MPS = torch.device("mps")


class FakeMps(TorchFunctionMode):
    """Runs the work for mps on the CPU, and refuses new float64 tensors there, as Apple's GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        devices = [each for each in [*args, *kwargs.values()] if is_device(each)]
        args = [torch.device("cpu") if is_device(each) else each for each in args]
        kwargs = {key: torch.device("cpu") if is_device(v) else v for key, v in kwargs.items()}
        result = func(*args, **kwargs)
        if (
            {MPS, "mps"} & set(devices)
            and isinstance(result, torch.Tensor)
            and result.dtype == torch.float64
        ):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return result


class CpuGenerator(torch.Generator):
    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")


def is_device(value):
    return isinstance(value, (torch.device, str)) and str(value) == "mps"


@pytest.fixture
def apple(monkeypatch):
    """Provide a fake mps with a random generator of its own."""
    generator = torch.Generator().manual_seed(3)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", generator.set_state)
    monkeypatch.setattr(torch, "Generator", CpuGenerator)
    with FakeMps():
        yield generator


def test_a_run_on_mps_equals_one_on_the_cpu_and_resumes(small_run, apple, tmp_path):
    cpu = Trainer(small_run.replace(max_steps=10))
    list(cpu)
    trainer = Trainer(small_run.replace(max_steps=10, device="mps"))
    assert trainer.device == MPS
    metrics = list(trainer)
    for name, weight in cpu.model.state_dict().items():
        assert torch.equal(trainer.model.state_dict()[name], weight), name
    assert trainer.evaluate(64) == cpu.evaluate(64)
    save_checkpoint(tmp_path / "saved", trainer, metrics, trainer.evaluate(8))
    state = apple.get_state()
    apple.manual_seed(4)
    resumed, _ = resume_trainer(tmp_path / "saved")
    assert read_manifest(tmp_path / "saved").device == resumed.device.type == "mps"
    assert torch.equal(apple.get_state(), state)
    on_cpu, _ = resume_trainer(tmp_path / "saved", device="cpu")
    assert torch.equal(on_cpu.model.state_dict()[name], weight)


def test_mps_is_used_on_request_only(apple):
    assert resolve_device("auto").type != "mps"
    assert resolve_device("mps") == MPS


def test_mps_trains_with_float32_only(small_run):
    for precision in ("tf32", "bfloat16"):
        with pytest.raises(ConfigError, match="device is mps, which trains with float32 only"):
            small_run.replace(device="mps", precision=precision)


def test_a_machine_without_mps_names_the_other_devices(small_run):
    with pytest.raises(ValueError, match="device is 'mps', but Apple's GPU is not available here"):
        Trainer(small_run.replace(device="mps"))


def test_operations_that_mps_lacks_run_on_the_cpu():
    assert os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] == "1"
