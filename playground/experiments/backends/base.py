"""What a backend must do: start, list and cancel the jobs of shards."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from playground.common.validation import parse


@dataclass(frozen=True)
class Job:
    """What the jobs of an experiment have in common.

    id    names the experiment at the backend
    ids   the identifier of the last job of a shard, by its number
    """

    id: str
    folder: Path
    name: str
    n_shards: int
    ids: Mapping[int, str] = field(default_factory=dict)


class Backend(ABC):
    """A scheduler of jobs, with its options. UserError: it is not there or does not answer.

    shares_disk     jobs read and write the folder of the experiment itself
    runs_per_shard  default number of runs of a job
    needs_token     jobs belong to an account of the Hub
    token           the Hub token of the user who starts and follows the jobs
    account         the account whose jobs they are, if they need one
    """

    Options: ClassVar[type[BaseModel]]
    shares_disk: ClassVar[bool] = True
    runs_per_shard: ClassVar[int] = 20
    poll_interval_s: ClassVar[float] = 2.0
    needs_token: ClassVar[bool] = False
    token: str = ""
    account: str = ""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Check the options. Raises UserError for the first invalid one."""
        self.options: Any = parse(self.Options, options)

    @abstractmethod
    def start(self, job: Job, shards: Sequence[int]) -> dict[int, str]:
        """Start shards; return the identifiers of their jobs, by shard."""

    @abstractmethod
    def states(self, job: Job) -> dict[int, str]:
        """Return the state of each shard whose job waits or runs."""

    @abstractmethod
    def cancel(self, job: Job, shards: Collection[int]) -> None:
        """Cancel the jobs of shards; their runs are saved, and the finished ones stay."""

    @abstractmethod
    def log_hint(self, job: Job, shard: int) -> str:
        """Return where the output of a shard is, as a part of a sentence."""

    @abstractmethod
    def fetch(self, job: Job) -> None:
        """Copy the results so far into the folder."""

    def describe_cost(self, core_seconds: Sequence[float]) -> str:
        """Return the expected price of jobs as a sentence; empty if they have none.

        `core_seconds` has the expected seconds of training on one core, for each job.
        """
        return ""
