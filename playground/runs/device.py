"""The device on which runs train by default, and why.

It runs in a separate process: the server imports no torch, and a query of a GPU's name occupies GPU
memory until the process ends.
"""

import torch

from playground.common.format import format_count
from playground.common.platform import usable_cores
from playground.training.trainer import resolve_device


def report_device() -> dict[str, str]:
    """Return {"summary": a text such as "Training on cpu, 2 cores: no CUDA device is visible"}."""
    if resolve_device("auto").type == "cuda":
        gpu, count = torch.cuda.get_device_properties(0), torch.cuda.device_count()
        others = f", the first of {count} that are visible" if count > 1 else ""
        line = f"Training on cuda:0, {gpu.name} with {gpu.total_memory / 1e9:.0f} GB{others}"
    else:
        cores = format_count(usable_cores(), "core")
        line = f"Training on cpu, {cores}: {_cuda_unavailable_reason()}"
    return {"summary": line}


def _cuda_unavailable_reason() -> str:
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "no CUDA device is visible"
    if torch.backends.mps.is_available():
        return "Apple's GPU is used with device mps only"
    return "this PyTorch build has no CUDA support"
