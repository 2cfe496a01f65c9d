"""The base of the Hub jobs, and the specification of a job."""

from dataclasses import dataclass, field
from typing import Any

from playground.jobs.progress import ProgressReporter
from playground.runs.limits import Limits

from .repo_ids import Phase

MAX_PULL_BYTES = 200_000_000  # bytes
LOADING_TIMEOUT_S = 600.0  # seconds for imports on a busy machine at low priority
# The environment of a process that uses the Hub; set before huggingface_hub is imported.
HUB_ENV = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
}


@dataclass(frozen=True)
class HubTask:
    """The specification of a job. Paths are strings; the repr, and so the log, omits the token."""

    kind: str
    repo: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    revision: str = "main"
    private: bool = False
    license: str = ""  # of the published model; empty for that of `model_card.default_license`
    page: bool = False  # publish the interactive page too, also as a Space
    checkpoint: str = ""
    run_folder: str = ""  # the folder of the run, which contains the metrics
    destination: str = ""
    # The commit that the owner has previewed, empty for none; None accepts any commit.
    expected_parent: str | None = None
    max_bytes: int = MAX_PULL_BYTES
    limits: Limits = field(default_factory=Limits)  # of the server, for downloaded models
    # The SHA-256 of the datasets that a downloaded model may use; None for all.
    datasets: frozenset[str] | None = None


class TaskRunner:
    """What the jobs share: the connection, the reports, and the folder for temporary files."""

    def __init__(self, hub: Any, task: HubTask, reporter: ProgressReporter) -> None:
        self.hub, self.task, self.reporter, self.scratch = hub, task, reporter, reporter.scratch

    def report(
        self, message: str, silence_timeout_s: float = 0.0, phase: Phase = Phase.READING
    ) -> None:
        """Report the current operation, its extra seconds without messages, and its phase."""
        self.reporter.message(message, silence_timeout_s, phase)

    def report_loading(self) -> None:
        """Report that imports begin, which may take minutes; call it before the first import."""
        self.report("Loading PyTorch", LOADING_TIMEOUT_S)

    def connect(self) -> None:
        self.report("Connecting to the Hub")
        self.hub.connect()

    def account(self) -> dict[str, Any]:
        self.connect()
        return dict(self.hub.account())
