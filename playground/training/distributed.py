"""One run on several processes, as `torchrun` starts them.

Every rank draws the whole batch from the same generator and trains its own rows of it; torch's DistributedDataParallel averages the
gradients (Li et al. 2020, "PyTorch Distributed"). So a run is the same run on any number of processes, up to rounding and
dropout: `batch_size` is the size of the whole batch, and a resumed run draws the batches that would have come, on however many
processes it goes on. What a rank decides (a step that is skipped, an end), it decides from numbers that are the same on all.
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
    """The processes of a run, as one of them sees it. Where it is the only one, everything here leaves what it is given as it is.

    `check`, `check_alike`, `loss`, `sum`, `mean` and `most` are meetings: every rank must come to them, in the same order. Where one
    has ended instead, the others get a RuntimeError from torch.
    """

    rank: int = 0  # from 0 to size - 1; the first one speaks and writes
    size: int = 1
    local_rank: int = 0  # among those on the same machine; the number of its GPU

    @property
    def first(self) -> bool:
        return self.rank == 0

    def device(self, kind: torch.device) -> torch.device:
        """This rank's own device of that kind."""
        return (
            torch.device("cuda", self.local_rank) if self.size > 1 and kind.type == "cuda" else kind
        )

    def check(self, config: RunConfig, device: torch.device) -> None:
        """Hold a run against the ranks that are to train it together.

        Raises:
            SettingError: for a batch that they cannot share evenly.
            ValueError: when they would not draw the same batches: other settings, another torch, another kind of GPU.
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
            reason = f"batch_size is {rows}, the rows of all processes together, and {self.size} cannot share them evenly"
            raise SettingError(
                "batch_size", f"{reason}; use {good}, or another number of processes"
            )

    def check_alike(self, what: str, text: str) -> None:
        """Raises ValueError, on every rank, where `text` is not the same on all of them; `what` it tells of."""
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
                f"process {odd} does not have the {what} of process 0; start all with the same command on the same files"
            )

    def share(self, batch: Batch) -> Batch:
        """This rank's rows of the whole batch."""
        rows = torch.arange(len(batch.weight_B), device=batch.weight_B.device)
        return batch.rows(rows.chunk(self.size)[self.rank])

    def loss(self, family: Family) -> Loss:
        """What to call for the loss of a whole batch. Of several ranks, each gets a part, and after `backward` all have the
        gradient of the whole; `mean` over the ranks makes the parts the loss. All begin with the weights of the first."""
        if self.size == 1:
            return family.loss
        # What families keep as buffers (tables of positions, masks) is made once and never changes.
        wrapped: Loss = DistributedDataParallel(Share(family, self), forward_sync_buffers=False)
        return wrapped

    def draw_apart(self, seed: int) -> None:
        """From here on torch's global generator, which dropout draws from, gives every rank numbers of its own. The first goes on as
        a process alone would."""
        if not self.first:
            torch.manual_seed(seed + self.rank)

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, the same to the bit on each."""
        if self.size == 1:
            return tensor
        total = tensor.to(self._where(), copy=True)
        dist.all_reduce(total)
        return total.to(tensor.device)

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over all ranks, the same to the bit on each."""
        return self.sum(tensor) / self.size if self.size > 1 else tensor

    def most(self, number: int) -> int:
        """The largest of the numbers that the ranks give."""
        if self.size == 1:
            return number
        largest = torch.tensor(number, device=self._where())
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def leave(self) -> None:
        """The end of working together, where all went well: whoever fails just ends, which the others notice."""
        if self.size > 1:
            dist.destroy_process_group()

    def _where(self) -> torch.device:
        """Where tensors must be for the ranks to exchange them: nccl speaks from GPU to GPU only."""
        return (
            torch.device("cuda", self.local_rank)
            if dist.get_backend() == "nccl"
            else torch.device("cpu")
        )


ALONE = Ranks()


def join(device: torch.device) -> Ranks:
    """Meet the other processes that torchrun started; without torchrun there are none.

    Raises:
        ValueError: when there are more processes on this machine than GPUs.
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
                f"torchrun started {here} processes here, but there are {gpus} GPUs; lower --nproc-per-node or use --device cpu"
            )
        torch.cuda.set_device(ranks.local_rank)
        options = {"backend": "nccl", "device_id": ranks.device(device)}
    dist.init_process_group(**options)
    return ranks


class Share(nn.Module):
    """A rank's part of the loss. DistributedDataParallel calls it and takes the mean of the gradients over the ranks.

    The loss of a batch is a mean over the tokens that train, and no rank has as many of them as the next one, for rows are of
    several lengths and the held-out ones among them do not count. With n_r tokens on rank r and n in all, loss_r * n_r * size / n has
    the loss of the whole batch as its mean over the ranks.
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
    """How many label tokens the mean of a family's loss goes over."""
    return ((batch.labels_BT != PAD) * batch.weight_B[:, None]).sum()
