"""One run on several processes, started by `torchrun`.

Every rank samples the whole batch from the same generator and trains on its own part of it.
DistributedDataParallel averages the gradients (Li et al. 2020, "PyTorch Distributed"). So a run is
the same on any number of processes, up to rounding and dropout: `batch_size` is the size of the
whole batch, and a resumed run samples the batches that would have followed, whatever its number of
processes. Every decision of a rank (a skipped step, the end) depends on numbers that are equal on
all ranks.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.models.config_fields import ConfigError
from playground.tasks import PAD
from playground.tasks.task import Batch

from .run_config import RunConfig

LossFn = Callable[[Batch, float], Tensor]


@dataclass(frozen=True)
class DistributedContext:
    """The processes of a run, from the view of one of them.

    `check_consistent`, `check_equal`, `wrap_loss`, `all_reduce_sum`, `all_reduce_mean` and
    `all_reduce_max` are collective operations: every rank must call them, in the same order. If a
    rank has ended, the others get a RuntimeError from PyTorch. With a single process, all methods
    return their input unchanged.
    """

    rank: int = 0  # from 0 to size - 1; rank 0 reports and writes
    world_size: int = 1
    local_rank: int = 0  # the rank on this machine, which is the index of its GPU

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def device(self, kind: torch.device) -> torch.device:
        """Return this rank's own device of that kind."""
        return (
            torch.device("cuda", self.local_rank)
            if self.world_size > 1 and kind.type == "cuda"
            else kind
        )

    def check_consistent(self, config: RunConfig, device: torch.device) -> None:
        """Check that these ranks can train the run together.

        Raises ConfigError for a batch that cannot be divided evenly; ValueError if they would not
        sample the same batches, because of settings, the version of torch or the kind of GPU.
        """
        if self.world_size == 1:
            return
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.check_equal(
            "settings, version of torch or kind of GPU",
            json.dumps([config.to_flat(), torch.__version__, kind]),
        )
        batch_size = config.training.batch_size
        if batch_size % self.world_size:
            below = batch_size - batch_size % self.world_size
            above = batch_size + -batch_size % self.world_size
            good = f"{below} or {above}" if below else str(above)
            raise ConfigError(
                "batch_size",
                f"batch_size is {batch_size}, the size of the whole batch, which {self.world_size} "
                f"processes cannot divide evenly; use {good}, or another number of processes",
            )

    def check_equal(self, what: str, text: str) -> None:
        """Raise ValueError on every rank if `text` differs between them; `what` describes it."""
        if self.world_size == 1:
            return
        local_digest = torch.tensor(list(hashlib.sha256(text.encode()).digest())).to(
            self._comm_device()
        )
        digests = [torch.empty_like(local_digest) for _ in range(self.world_size)]
        dist.all_gather(digests, local_digest)
        different_rank = next(
            (rank for rank, each in enumerate(digests) if not torch.equal(each, digests[0])), None
        )
        if different_rank is not None:
            raise ValueError(
                f"process {different_rank} does not have the {what} of process 0; start all "
                "processes with the same command on the same files"
            )

    def local_shard(self, batch: Batch) -> Batch:
        """Return this rank's part of the whole batch."""
        index = torch.arange(len(batch.loss_weight_B), device=batch.loss_weight_B.device)
        return batch.select(index.chunk(self.world_size)[self.rank])

    def wrap_loss(self, model: Seq2SeqModel) -> LossFn:
        """Return the loss function of a whole batch.

        With several ranks, each computes a part, and after `backward` all have the gradient of the
        whole; `all_reduce_mean` over the ranks turns the parts into the loss. All ranks start with
        the weights of rank 0.
        """
        if self.world_size == 1:
            return model.loss
        # The buffers of the models (position tables, masks) are computed once and never change.
        wrapped: LossFn = DistributedDataParallel(
            ShardedLoss(model, self), forward_sync_buffers=False
        )
        return wrapped

    def seed_rank(self, seed: int) -> None:
        """Give every rank its own random numbers from torch's global generator, as for dropout.

        Rank 0 continues like a single process.
        """
        if not self.is_main:
            torch.manual_seed(seed + self.rank)

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, equal to the bit on each."""
        if self.world_size == 1:
            return tensor
        total = tensor.to(self._comm_device(), copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def all_reduce_mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over all ranks, equal to the bit on each."""
        return self.all_reduce_sum(tensor) / self.world_size if self.world_size > 1 else tensor

    def all_reduce_max(self, number: int) -> int:
        """Return the maximum over all ranks."""
        if self.world_size == 1:
            return number
        maximum = torch.tensor(number, device=self._comm_device())
        dist.all_reduce(maximum, dist.ReduceOp.MAX)
        return int(maximum)

    def shutdown(self) -> None:
        """Shut down after success; a rank that fails just ends, and the others get an error."""
        if self.world_size > 1:
            dist.destroy_process_group()

    def _comm_device(self) -> torch.device:
        """Return the device for communication: nccl needs tensors on GPUs."""
        return (
            torch.device("cuda", self.local_rank)
            if dist.get_backend() == "nccl"
            else torch.device("cpu")
        )


SINGLE_PROCESS = DistributedContext()


def init_distributed(device: torch.device) -> DistributedContext:
    """Connect to the other processes that torchrun started; without torchrun there are none."""
    env = os.environ
    if int(env.get("WORLD_SIZE", 1)) == 1:
        return SINGLE_PROCESS
    context = DistributedContext(int(env["RANK"]), int(env["WORLD_SIZE"]), int(env["LOCAL_RANK"]))
    if device.type == "mps":
        raise ValueError("torchrun cannot use Apple's GPU (mps); use --device cpu")
    options: dict[str, Any] = {"backend": "gloo"}
    if device.type == "cuda":
        local_world_size, gpus = int(env["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
        if local_world_size > gpus:
            raise ValueError(
                f"torchrun started {local_world_size} processes here, but there are {gpus} GPUs; "
                "lower --nproc-per-node or use --device cpu"
            )
        torch.cuda.set_device(context.local_rank)
        options = {"backend": "nccl", "device_id": context.device(device)}
    dist.init_process_group(**options)
    return context


class ShardedLoss(nn.Module):
    """A rank's part of the loss; DistributedDataParallel averages the gradients.

    The loss of a batch is a mean over its training tokens. The ranks have different numbers of
    them, because lengths differ and held-out sequences do not count. With n_r tokens on rank r and
    n in total, the mean over the ranks of loss_r * n_r * size / n is the loss of the whole batch.
    """

    def __init__(self, model: Seq2SeqModel, context: DistributedContext) -> None:
        super().__init__()
        self.model = model
        self.context = context

    def forward(self, batch: Batch, label_smoothing: float) -> Tensor:
        shard = self.context.local_shard(batch)
        fraction = num_loss_tokens(shard) / num_loss_tokens(batch).clamp(min=1)
        return self.model.loss(shard, label_smoothing) * fraction * self.context.world_size


def num_loss_tokens(batch: Batch) -> Tensor:
    """Return the number of label tokens that the loss averages over."""
    return ((batch.labels_BT != PAD) * batch.loss_weight_B[:, None]).sum()
