"""Where the shards of an experiment train: one module for each scheduler that users have."""

from .base import Backend, Job
from .hf_jobs import HfJobs
from .slurm import Slurm

BACKENDS: dict[str, type[Backend]] = {"slurm": Slurm, "hf-jobs": HfJobs}

__all__ = ["BACKENDS", "Backend", "Job"]
