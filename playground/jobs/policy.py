"""The limits of a queue: how many jobs run and wait, and for how long; and the jobs below them."""

from collections.abc import Iterator
from dataclasses import dataclass

from .admission import Admission
from .fair_order import FairOrder
from .job import Job

DEFAULT_ADMISSION = Admission(total=16)


@dataclass(frozen=True)
class Policy:
    """The limits of some kinds of jobs. Times are in seconds; None means no limit.

    A queue without waiting jobs admits as many as run.
    """

    process: str = "the process"  # its name in messages
    advice: str = "try again"  # what to do after the process has ended early
    max_running: int = 1
    max_running_per_address: int | None = None
    admission: Admission = DEFAULT_ADMISSION  # of jobs that wait or run

    run_timeout_s: float | None = None
    timeout_advice: str = "request less"
    silence_timeout_s: float | None = None  # without a message of the process
    startup_timeout_s: float = 0.0  # additional, until the first message
    cancel_message: str = "cancelled"
    cancel_grace_s: float = 0.0  # for a cancelled job to end; 0 kills its process at once
    saving_kinds: frozenset[str] = frozenset()  # kinds that save a result when they are cancelled
    save_grace_s: float = 0.0
    max_turn_s: float | None = None  # of a running job while a job of another owner waits
    unpolled_timeout_s: float | None = None  # without a poll, while another job waits
    start_polled_within_s: float | None = (
        None  # a job that is not polled keeps its queue position, but does not start
    )

    result_ttl_s: float = 0.0  # after the end; 0 stores no finished job
    max_results: int | None = None


class Lane:
    """The jobs with one policy: those that wait, and those that a process has."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.turns = FairOrder()
        self.waiting: dict[Job, None] = {}  # in the order of their arrival
        self.running: dict[Job, None] = {}  # in the order of their start

    def active(self) -> list[Job]:
        return [*self.running, *self.waiting]

    def order(self) -> Iterator[Job]:
        """Yield the waiting jobs that are ready, in the order in which they start."""
        ready = [job for job in self.waiting if job.is_ready]
        return self.turns.order(ready, self.running)

    def is_idle(self, job: Job, now: float) -> bool:
        """Return whether a waiting job is not polled."""
        limit = self.policy.start_polled_within_s
        return job in self.waiting and limit is not None and now - job.polled_at > limit
