"""What a backend must do: start, list and cancel the jobs of shards."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from playground.common.validation import parse


@dataclass(frozen=True)
class Job:
    """What the jobs of an experiment have in common."""

    folder: Path
    name: str
    n_shards: int


class Backend(ABC):
    """A scheduler of jobs, with its options.

    All methods raise a UserError when the scheduler is not there or does not answer.
    """

    Options: ClassVar[type[BaseModel]]

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Check the options.

        Raises:
            UserError: for the first invalid one.
        """
        self.options: Any = parse(self.Options, options)

    @abstractmethod
    def start(self, job: Job, shards: Sequence[int]) -> dict[int, str]:
        """Start shards; return the identifiers of their jobs, by shard."""

    @abstractmethod
    def states(self, jobs: Iterable[str]) -> dict[str, str]:
        """Return the state of each of these jobs that waits or runs."""

    @abstractmethod
    def cancel(self, jobs: Collection[str]) -> None:
        """Cancel jobs; their runs are saved, and the finished ones stay."""

    @abstractmethod
    def log_hint(self, folder: Path, shard: int) -> str:
        """Return where the output of a shard is, as a part of a sentence."""
