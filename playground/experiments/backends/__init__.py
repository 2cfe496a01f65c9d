"""Where the shards of an experiment train: one module for each scheduler that users have."""

from playground.common import messages
from playground.errors import UserError

from .base import Backend, Job
from .hf_jobs import HfJobs
from .slurm import Slurm

BACKENDS: dict[str, type[Backend]] = {"slurm": Slurm, "hf-jobs": HfJobs}

__all__ = ["BACKENDS", "Backend", "Job", "find_backend"]


def find_backend(name: str) -> type[Backend]:
    if name not in BACKENDS:
        raise UserError(messages.choose_one_of("on", name, BACKENDS), "on")
    return BACKENDS[name]
