"""Who may have how many things at a time: every such limit by its name, and its only check.

A client can create any number of owner keys, but not of addresses: an owner's limit alone can be
bypassed. PLAYGROUND_LIMITS changes the limits. server/rate_limit.py limits the rate of requests.
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import NamedTuple

from playground.common.env import EnvError, env_text
from playground.common.storage import Thing, evict
from playground.errors import UserError

CLIENT_ADDRESS = ContextVar("client_address", default="")
VIEWER = "viewer"  # the owner of requests through a share link


class Client(NamedTuple):
    """The client whose quota a request uses: an address, and an owner's fingerprint or VIEWER."""

    address: str = ""
    owner: str = ""


NO_CLIENT = Client()


@dataclass(frozen=True)
class Admission:
    """How many things one owner, one address and all clients may have at a time.

    None is no limit; an address may have half of the total unless `per_address` is set.
    Work without a client, such as that of a command, has no owner and no address.

    Args:
        nouns: the name of the things in messages.
        remedy: what frees a place, for things that do not end by themselves.
    """

    nouns: str = "jobs"
    per_owner: int | None = None
    per_address: int | None = None
    total: int | None = None
    remedy: str = ""

    @property
    def of_address(self) -> int | None:
        if self.per_address is None and self.total is not None:
            return max(1, self.total // 2)
        return self.per_address

    def exceeded(self, client: Client, present: Iterable[Client]) -> str:
        """Return which limit one more would exceed: "owner", "address", "total", or ""."""
        present = list(present)
        limits = {
            "owner": (self.per_owner, client.owner, [each.owner for each in present]),
            "address": (self.of_address, client.address, [each.address for each in present]),
        }
        for name, (limit, key, keys) in limits.items():
            if limit is not None and key and keys.count(key) >= limit:
                return name
        return "total" if self.total is not None and len(present) >= self.total else ""

    def admit(self, client: Client, present: Iterable[Client]) -> None:
        """Raise UserError if the owner, the address or all clients have the maximum.

        `present`: the client of each thing that exists.
        """
        reached = self.exceeded(client, present)
        if reached:
            who, limit = {
                "owner": ("you have", self.per_owner),
                "address": ("your address has", self.of_address),
                "total": ("this server has", self.total),
            }[reached]
            of_all = reached == "total"
            own = "wait for one to end, or cancel it, and try again"
            remedy = self.remedy or ("try again in a moment" if of_all else own)
            raise UserError(
                f"{who} {limit} {self.nouns}, which is the maximum; {remedy}",
                retryable=of_all or not self.remedy,
            )

    def admit_or_evict(
        self,
        client: Client,
        present: Mapping[Thing, Client],
        idle: Iterable[Thing],
        remove: Callable[[Thing], int],
    ) -> None:
        """Check that a client may have one more, for which an idle thing may make way.

        When an address has its share, that is one of the same address. Raises UserError if the
        owner has the maximum, or nothing can make way.

        Args:
            present: each thing that exists, with its client.
            idle: those that may go, in the order in which they go.
            remove: removes a thing, and returns 1.
        """
        reached = self.exceeded(client, present.values())
        if reached in ("address", "total"):
            removable = (
                thing
                for thing in idle
                if reached == "total" or present[thing].address == client.address
            )
            if not evict(removable, 1, remove):
                return
        self.admit(client, present.values())


@dataclass(frozen=True)
class Policy:
    """The limits of some kinds of jobs. Times are in seconds; None means no limit.

    A queue without waiting jobs admits as many as run.
    """

    process: str = "the process"  # its name in messages
    advice: str = "try again"  # what to do after the process has ended early
    max_running: int = 1
    max_running_per_address: int | None = None
    admission: Admission = Admission(total=16)  # of jobs that wait or run

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
    # a job that is not polled keeps its queue position, but does not start
    start_polled_within_s: float | None = None

    result_ttl_s: float = 0.0  # after the end; 0 stores no finished job
    max_results: int | None = None


LIMITS = {
    "runs": Admission("runs", per_owner=200, per_address=4000, remedy="delete some first"),
    "queued-runs": Admission(
        "queued runs", per_owner=16, total=400, remedy="wait until one starts, or stop one"
    ),
    "experiments": Admission("experiments", per_owner=50, total=2000, remedy="delete one first"),
    "experiments-elsewhere": Admission(
        "experiments in jobs", per_owner=4, total=64, remedy="delete one first"
    ),
    "experiment-runs": Admission("runs of one experiment", per_owner=60),
    "measurements": Admission("measurements", per_owner=2, total=400),
    "classes": Admission(
        "classes", per_owner=5, per_address=20, total=500, remedy="close one first"
    ),
    "pupils-of-a-class": Admission(
        "pupils in a class", total=200, remedy="ask your teacher to open another one"
    ),
    "datasets": Admission("datasets", per_owner=50, remedy="remove one first"),
    "fine-tuned-models": Admission(
        "fine-tuned models", total=6, remedy="try again later: after an hour, the oldest makes way"
    ),
    # Jobs that wait or run
    "pretrained-jobs": Admission("jobs", per_owner=2, total=16),
    "pretrained-queries": Admission("requests", per_owner=4, total=16),
    "hub-jobs": Admission("Hub jobs", per_owner=2, total=4),
    "galleries": Admission("galleries", per_owner=2, total=4),
    "inspections": Admission("requests to a model", per_owner=9, per_address=64, total=512),
    "pictures": Admission("pictures", per_address=4, total=8),
    "reports": Admission("reports and pages", per_address=3, total=5),
    "checkpoint-checks": Admission("uploads", total=16),
    "dataset-reads": Admission("datasets", total=10),
    "dataset-previews": Admission("dataset previews", total=8),
    # Transfers
    "uploads": Admission("uploads", total=2),
    "downloads": Admission("downloads", total=16),
    "dataset-uploads": Admission("uploads of datasets", total=8),
    "download-links": Admission("download links", per_address=200),
    "waiting-calls": Admission("calls that wait for a job", per_address=8, total=64),
}
FIELDS = ("per_owner", "per_address", "total")


def limit(name: str) -> Admission:
    """Return the limit of this name, with the numbers that PLAYGROUND_LIMITS sets.

    Raises EnvError if PLAYGROUND_LIMITS names a limit that does not exist.
    """
    changes: dict[str, int] = {}
    for entry in filter(None, map(str.strip, env_text("LIMITS").split(","))):
        key, _, number = entry.partition("=")
        of, _, field = key.partition(".")
        if of not in LIMITS:
            raise EnvError(
                f"PLAYGROUND_LIMITS sets {of!r}, which is no limit; the limits are "
                f"{', '.join(LIMITS)}"
            )
        if of == name:
            changes[field.replace("-", "_")] = int(number)
    return replace(LIMITS[name], **changes)  # type: ignore[arg-type]


def max_amount_per_address(amount: float) -> float:
    """Return how much of an amount of disk space one address may use."""
    return amount / 2
