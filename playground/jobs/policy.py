"""The limits of a queue: how many jobs run and wait, and for how long."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from playground.errors import BusyError, UserError

from .addresses import max_per_address
from .job import Job


@dataclass(frozen=True)
class Policy:
    """The limits of some kinds of jobs. Times are in seconds; None means no limit.

    A queue without waiting jobs has `max_active` equal to `max_running`.
    """

    process: str = "the process"  # its name in messages
    nouns: str = "jobs"  # the name of the jobs in messages
    advice: str = "try again"  # what to do after the process has ended early
    max_running: int = 1
    max_running_per_address: int | None = None
    # Jobs that wait or run. None per address is half of all, as `addresses` defines it.
    max_active: int = 16
    max_active_per_owner: int | None = None
    max_active_per_address: int | None = None
    max_rows: int = 20_000

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
    max_results_per_owner: int | None = None
    max_results: int | None = None

    def ensure_within_limits(self, job: Job, active: Iterable[Job]) -> None:
        """Check that a job may join the active ones.

        Raises:
            UserError: if its owner, its address or all clients have too many jobs.
        """
        owners, addresses = Counter[str](), Counter[str]()
        for other in active:
            owners[other.owner] += 1
            addresses[other.address] += 1
        total, of_owner = owners.total(), owners[job.owner] if job.owner else 0
        address_limit = self.max_active_per_address or max_per_address(self.max_active)
        if self.max_active_per_owner is not None and of_owner >= self.max_active_per_owner:
            raise UserError(
                f"{of_owner} of your {self.nouns} are still queued or running, which is the limit; "
                "wait for one, or cancel it, and try again",
                retryable=True,
            )
        if total >= self.max_active:
            raise BusyError(f"too many {self.nouns} are queued or running")
        if job.address and addresses[job.address] >= address_limit:
            raise UserError(
                f"{address_limit} {self.nouns} from your address are still queued or running, "
                "which is the limit; wait for one and try again",
                retryable=True,
            )
