"""One run on several processes, started by `torchrun`.

Every rank samples the whole batch from the same generator and trains on its own part of it.
DistributedDataParallel averages the gradients (Li et al. 2020, "PyTorch Distributed"). So a run is
the same on any number of processes, up to rounding and dropout: `batch_size` is the size of the
whole batch, and a resumed run samples the batches that would have followed, whatever its number of
processes. Every decision of a rank (a skipped step, the end) depends on numbers that are equal on
all ranks.
"""

from __future__ import annotations

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

from playground.families.family import Family
from playground.models.config import SettingError
from playground.tasks import PAD
from playground.tasks.task import Batch

from .config import RunConfig

Loss = Callable[[Batch, float], Tensor]


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, from the view of one of them.

    `check`, `check_alike`, `loss`, `sum`, `mean` and `most` are collective operations: every rank
    must call them, in the same order. If a rank has ended, the others get a RuntimeError from
    PyTorch. With a single process, all methods return their input unchanged.
    """

    rank: int = 0  # from 0 to size - 1; rank 0 reports and writes
    size: int = 1
    local_rank: int = 0  # the rank on this machine, which is the index of its GPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    def device(self, kind: torch.device) -> torch.device:
        """Return this rank's own device of that kind."""
        return (
            torch.device("cuda", self.local_rank) if self.size > 1 and kind.type == "cuda" else kind
        )

    def check(self, config: RunConfig, device: torch.device) -> None:
        """Check that these ranks can train the run together.

        Raises:
            SettingError: for a batch that cannot be divided evenly.
            ValueError: if they would not sample the same batches, because of other settings,
                another version of torch or another kind of GPU.
        """
        if self.size == 1:
            return
        kind = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.check_alike(
            "settings, version of torch or kind of GPU",
            json.dumps([config.to_fields(), torch.__version__, kind]),
        )
        rows = config.training.batch_size
        if rows % self.size:
            below, above = rows - rows % self.size, rows + -rows % self.size
            good = f"{below} or {above}" if below else str(above)
            raise SettingError(
                "batch_size",
                f"batch_size is {rows}, the size of the whole batch, which {self.size} processes "
                f"cannot divide evenly; use {good}, or another number of processes",
            )

    def check_alike(self, what: str, text: str) -> None:
        """Raise ValueError on every rank if `text` differs between them; `what` describes it."""
        if self.size == 1:
            return
        mine = torch.tensor(list(hashlib.sha256(text.encode()).digest())).to(self._where())
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(all_of_them, mine)
        odd = next(
            (
                rank
                for rank, each in enumerate(all_of_them)
                if not torch.equal(each, all_of_them[0])
            ),
            None,
        )
        if odd is not None:
            raise ValueError(
                f"process {odd} does not have the {what} of process 0; start all processes with "
                f"the same command on the same files"
            )

    def share(self, batch: Batch) -> Batch:
        """Return this rank's part of the whole batch."""
        rows = torch.arange(len(batch.weight_B), device=batch.weight_B.device)
        return batch.rows(rows.chunk(self.size)[self.rank])

    def loss(self, family: Family) -> Loss:
        """Return the loss function of a whole batch.

        With several ranks, each computes a part, and after `backward` all have the gradient of the
        whole; `mean` over the ranks turns the parts into the loss. All ranks start with the weights
        of rank 0.
        """
        if self.size == 1:
            return family.loss
        # The buffers of the models (position tables, masks) are computed once and never change.
        wrapped: Loss = DistributedDataParallel(Share(family, self), forward_sync_buffers=False)
        return wrapped

    def draw_apart(self, seed: int) -> None:
        """Give every rank its own random numbers from torch's global generator, as for dropout.

        Rank 0 continues like a single process.
        """
        if not self.first:
            torch.manual_seed(seed + self.rank)

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks, equal to the bit on each."""
        if self.size == 1:
            return tensor
        total = tensor.to(self._where(), copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over all ranks, equal to the bit on each."""
        return self.sum(tensor) / self.size if self.size > 1 else tensor

    def most(self, number: int) -> int:
        """Return the maximum over all ranks."""
        if self.size == 1:
            return number
        largest = torch.tensor(number, device=self._where())
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def leave(self) -> None:
        """Shut down after success; a rank that fails just ends, and the others get an error."""
        if self.size > 1:
            dist.destroy_process_group()

    def _where(self) -> torch.device:
        """Return the device for communication: nccl needs tensors on GPUs."""
        return (
            torch.device("cuda", self.local_rank)
            if dist.get_backend() == "nccl"
            else torch.device("cpu")
        )


ALONE = Ranks()


def join(device: torch.device) -> Ranks:
    """Connect to the other processes that torchrun started; without torchrun there are none.

    Raises:
        ValueError: if there are more processes on this machine than GPUs.
    """
    told = os.environ
    if int(told.get("WORLD_SIZE", 1)) == 1:
        return ALONE
    ranks = Ranks(int(told["RANK"]), int(told["WORLD_SIZE"]), int(told["LOCAL_RANK"]))
    options: dict[str, Any] = {"backend": "gloo"}
    if device.type == "cuda":
        here, gpus = int(told["LOCAL_WORLD_SIZE"]), torch.cuda.device_count()
        if here > gpus:
            raise ValueError(
                f"torchrun started {here} processes here, but there are {gpus} GPUs; lower "
                f"--nproc-per-node or use --device cpu"
            )
        torch.cuda.set_device(ranks.local_rank)
        options = {"backend": "nccl", "device_id": ranks.device(device)}
    dist.init_process_group(**options)
    return ranks


class Share(nn.Module):
    """A rank's part of the loss; DistributedDataParallel averages the gradients.

    The loss of a batch is a mean over its training tokens. The ranks have different numbers of
    them, because lengths differ and held-out sequences do not count. With n_r tokens on rank r and
    n in total, the mean over the ranks of loss_r * n_r * size / n is the loss of the whole batch.
    """

    def __init__(self, family: Family, ranks: Ranks) -> None:
        super().__init__()
        self.family = family
        self.ranks = ranks

    def forward(self, batch: Batch, label_smoothing: float) -> Tensor:
        mine = self.ranks.share(batch)
        part = tokens_that_train(mine) / tokens_that_train(batch).clamp(min=1)
        return self.family.loss(mine, label_smoothing) * part * self.ranks.size


def tokens_that_train(batch: Batch) -> Tensor:
    """Return the number of label tokens that the loss averages over."""
    return ((batch.labels_BT != PAD) * batch.weight_B[:, None]).sum()
