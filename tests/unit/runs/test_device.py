"""The summary of the training device, with the reason."""

from types import SimpleNamespace

import pytest
import torch

from playground.runs import device
from playground.runs.device import report_device


@pytest.fixture
def machine(monkeypatch):
    def machine(cores=2, cuda="13.0", gpus=(), apple=False):
        monkeypatch.setattr(device, "usable_cores", lambda: cores)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        functions = {
            "get_device_properties": lambda n: SimpleNamespace(name=gpus[n], total_memory=80e9)
        }
        for name, function in functions.items():
            monkeypatch.setattr(torch.cuda, name, function)

    return machine


@pytest.mark.parametrize(
    ("properties", "summary"),
    [
        ({}, "Training on cpu, 2 cores: no CUDA device is visible"),
        (
            {"cores": 1, "cuda": None},
            "Training on cpu, 1 core: this PyTorch build has no CUDA support",
        ),
        (
            {"cuda": None, "apple": True},
            "Training on cpu, 2 cores: Apple's GPU is used with device mps only",
        ),
        ({"gpus": ["NVIDIA A"]}, "Training on cuda:0, NVIDIA A with 80 GB"),
        (
            {"gpus": ["NVIDIA A", "NVIDIA B"]},
            "Training on cuda:0, NVIDIA A with 80 GB, the first of 2 that are visible",
        ),
    ],
)
def test_the_summary_has_the_device_and_the_reason(machine, properties, summary):
    machine(**properties)
    assert report_device() == {"summary": summary}
