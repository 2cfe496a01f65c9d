"""The batches of a run: new samples at each step, or a fixed training set."""

import torch

from playground.tasks.held_out import sample_training_batch
from playground.tasks.task import Batch, Task
from playground.tasks.training_set import TrainingSet

from .config import RunConfig


class BatchSampler:
    """Return the batches of a run on a device.

    `generator` samples new sequences. Batches of a fixed training set depend on seed and step only.
    """

    def __init__(self, task: Task, config: RunConfig, device: torch.device) -> None:
        self.task, self.config, self.device = task, config, device
        self.generator = torch.Generator(device).manual_seed(config.training.seed)
        self.training_set: TrainingSet | None = None
        if n := config.task.n_training_sources:
            lengths = config.task.min_length, config.task.max_length
            self.training_set = TrainingSet(task, n, *lengths, config.training.seed)

    def batch(self, index: int) -> Batch:
        """Return the batch with this index, counted from 0; new batches are sampled in order."""
        batch_size, task = self.config.training.batch_size, self.config.task
        if self.training_set is not None:
            return self.training_set.batch(index, batch_size).to(self.device)
        return sample_training_batch(
            self.task, batch_size, task.min_length, task.max_length, self.generator
        )
