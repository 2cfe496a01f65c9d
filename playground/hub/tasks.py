"""Run one Hub job in its own process.

A hanging job cannot block the page, and a killed job leaves no partial state: a push is one commit,
and a pull moves a complete folder into place.

The kinds of job and their results:

    account        the account of the token
    gallery        the models with the playground's tag
    look           the content of a repository, without loading it
    preview        the files that a push would send, without an account or the network
    plan, push     the changes of a push; plan only computes them
    pull           a checkpoint in `into`
    reproduce      the score of a published model measured here, with the score of its card
    stage, deploy  the changes of a deployment to a Space; stage only computes them
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from playground.common.format import format_bytes
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.runs.limits import Limits

from .repo_ids import Phase

QUIET_ENV = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
MAX_PULL_BYTES = 200_000_000  # bytes
MAX_TEXT_BYTES = 1_000_000  # bytes of a card or a manifest
MAX_FILES = 100  # in the list of files
LOADING_TIMEOUT_S = 600.0  # seconds for imports on a busy machine at low priority
log = logging.getLogger(__name__)
TASK_KINDS = (
    "account",
    "gallery",
    "repo_info",
    "preview",
    "plan",
    "push",
    "pull",
    "reproduce",
    "plan_deploy",
    "deploy",
)


@dataclass(frozen=True)
class HubTask:
    """The specification of a job. Paths are strings; the repr, and so the log, omits the token."""

    kind: str
    repo: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    revision: str = "main"
    private: bool = False
    include_dataset: bool = False
    license: str = ""  # of the published model; empty for that of `card.default_license`
    checkpoint: str = ""
    run_folder: str = ""  # the folder of the run, which contains the metrics
    destination: str = ""
    # The commit that the owner has previewed, empty for none; None accepts any commit.
    expected_parent: str | None = None
    max_bytes: int = MAX_PULL_BYTES
    limits: Limits = field(default_factory=Limits)  # of the server, for downloaded models


def run_task(task: HubTask, reporter: ProgressReporter) -> dict[str, Any]:
    """Run a job: the function of its process.

    Raises:
        UserError: with the reason of the failure, without the token or a path of this machine.
    """
    os.environ.update(QUIET_ENV | ({"HF_ENDPOINT": task.endpoint} if task.endpoint else {}))
    from .client import Hub
    from .errors import HubError
    from .transport import configure_process

    scratch = reporter.scratch
    try:
        configure_process()
        if task.kind not in TASK_KINDS:
            raise HubError(f"{task.kind!r} is not a Hub job; use one of {', '.join(TASK_KINDS)}")
        runner = HubTaskRunner(Hub(task.token, task.endpoint), task, reporter)
        result: dict[str, Any] = getattr(runner, task.kind)()
        return result
    except (OSError, MemoryError, JobCancelled):
        raise
    except ValueError as error:
        # The name of the manifest in the repository.
        reason = str(error).replace(f"{scratch}/inspected/config.json", "playground.json")
        reason = re.sub(rf"{re.escape(str(scratch))}/\w+/?", "", reason)
        raise UserError(reason, retryable=getattr(error, "retryable", False)) from None
    except Exception as error:  # the message may contain a token; the traceback lines do not
        frame = "".join(traceback.format_tb(error.__traceback__))
        log.error("the Hub job %s failed with %s at:\n%s", task.kind, type(error).__name__, frame)
        raise UserError(
            f"unexpected error ({type(error).__name__}); try again", retryable=True
        ) from None


class HubTaskRunner:
    """The runner of one job, with a method for each kind of job."""

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

    def gallery(self) -> dict[str, Any]:
        self.connect()
        rows: list[dict[str, Any]] = []
        models = self.hub.gallery()
        self.report_loading()
        for model in models:
            # One malformed card must not hide the other models.
            with suppress(TypeError, ValueError, AttributeError, OverflowError):
                rows.append(_gallery_row(model))
        return {"models": rows}

    # Inspecting and downloading

    def repo_info(self) -> dict[str, Any]:
        from .errors import HubError

        self.connect()
        repo, manifest, card = self._inspect_repo()
        info = self._describe_repo(repo, manifest, card)
        with suppress(HubError):  # the older revisions are optional
            info["revisions"] = self.hub.revisions(self.task.repo, self.task.revision)
            info["branches"] = self.hub.branches(self.task.repo)
        return info

    def _inspect_repo(self) -> tuple[Any, Any, str]:
        """Return a repository's metadata, manifest and card, without loading the model.

        Raises:
            HubError: if it has no playground model, or a file is too large.
        """
        from playground.checkpoints.manifest import read_manifest

        from .errors import HubError, NotFoundError
        from .repo_ids import MANIFEST

        repo = self.task.repo
        self.report(f"Inspecting {repo}")
        try:
            repo_info = self.hub.repo_info(repo, self.task.revision)
        except NotFoundError:
            if self.task.revision == "main":
                raise
            branches = self.hub.branches(repo)  # raises HubError for a missing repository
            branch_names = (
                f"the branch {branches[0]}"
                if len(branches) == 1
                else f"one of the branches {', '.join(branches[:10])}"
            )
            raise HubError(
                f"{repo} has no revision {self.task.revision}; use {branch_names}, or the hash of "
                "a commit"
            ) from None
        sizes = repo_info.sizes
        if MANIFEST not in sizes or "model.safetensors" not in sizes:
            missing = MANIFEST if MANIFEST not in sizes else "model.safetensors"
            others: list[str] = []
            with suppress(HubError):
                others = [
                    branch for branch in self.hub.branches(repo) if branch != self.task.revision
                ]
            inspection = (
                f"; it has other branches, open one as {repo}@{others[0]}" if others else ""
            )
            raise HubError(
                f"{repo} is not a model of the playground: {missing} is missing{inspection}"
            )
        if sizes[MANIFEST] > MAX_TEXT_BYTES:
            raise HubError(
                f"{MANIFEST} of {repo} has {sizes[MANIFEST]:,} bytes; "
                f"at most {MAX_TEXT_BYTES:,} are accepted"
            )
        texts = {
            name: sizes[name]
            for name in (MANIFEST, "README.md")
            if sizes.get(name, MAX_TEXT_BYTES + 1) <= MAX_TEXT_BYTES
        }
        folder = self.scratch / "inspected"
        self.hub.fetch(repo, repo_info.sha, texts, folder)
        (folder / MANIFEST).rename(folder / "config.json")
        manifest = read_manifest(folder)
        card = (
            (folder / "README.md").read_text(encoding="utf-8", errors="replace")
            if "README.md" in texts
            else ""
        )
        return repo_info, manifest, card

    def _describe_repo(self, repo: Any, manifest: Any, card: str) -> dict[str, Any]:
        self.report_loading()
        from playground.runs.summary import task_label

        from .card_scores import read_scores

        model = manifest.config.model
        files = [
            {"path": file.path, "size": format_bytes(file.size)} for file in repo.files[:MAX_FILES]
        ]
        return {
            "repo": repo.id,
            "commit": repo.sha,
            "likes": repo.likes,
            "private": repo.private,
            "files": files,
            "files_in_all": len(repo.files),
            "task": task_label(manifest.config),
            "shape": [model.n_layers, model.attention_heads, model.d_model],
            "parameters": model.parameter_count(),
            "step": manifest.step,
            "seconds": manifest.seconds,
            "device": manifest.device,
            "card": read_scores(card),
            "resumable": "training.safetensors" in repo.sizes,
        }

    def _download(self, destination: Path) -> dict[str, Any]:
        """Download a checkpoint into a folder, and validate it."""
        self.report_loading()
        from playground.runs.export import CHECKPOINT_FILES
        from playground.runs.inspector_process import Inspector
        from playground.runs.memory import ensure_memory_available

        from .errors import HubError
        from .export import checkpoint_from_package
        from .repo_ids import MANIFEST

        about, manifest, card = self._inspect_repo()
        info = self._describe_repo(about, manifest, card)
        self.task.limits.validate(manifest.config)
        ensure_memory_available(manifest.config)
        files = {
            name: about.sizes[name]
            for name in (MANIFEST, *CHECKPOINT_FILES[1:])
            if name in about.sizes
        }
        if sum(files.values()) > self.task.max_bytes:
            limit = f"{self.task.max_bytes // 1_000_000} MB"
            raise HubError(
                f"{self.task.repo} has {sum(files.values()) / 1e6:.0f} MB; "
                f"at most {limit} are accepted here"
            )
        package = self.scratch / "package"
        self.hub.fetch(self.task.repo, about.sha, files, package, self.report)
        self.report("Validating the weights", LOADING_TIMEOUT_S)
        checkpoint_from_package(package, destination)
        Inspector().validate(destination)
        return info

    def pull(self) -> dict[str, Any]:
        """Download a published model to `destination`, which appears when it is complete."""
        self.connect()
        destination = Path(self.task.destination)
        info = self._download(self.scratch / "checkpoint")
        destination.parent.mkdir(parents=True, exist_ok=True)
        partial = destination.with_name(f".{destination.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed pull
        shutil.copytree(self.scratch / "checkpoint", partial)
        if destination.is_dir():
            destination.rmdir()  # the caller has checked that it is empty
        os.rename(partial, destination)
        return info

    def reproduce(self) -> dict[str, Any]:
        """Evaluate a published model on as many held-out sequences as its card reports."""
        self.connect()
        self.report_loading()
        from playground.checkpoints.checkpoint import load_model
        from playground.evaluation import evaluate
        from playground.tasks.held_out import build_held_out_set

        folder = self.scratch / "checkpoint"
        info = self._download(folder)
        manifest, model = load_model(folder)
        task = manifest.config.task
        n = (info["card"] or {}).get("n") or 2000
        self.report(f"Evaluating {n:,} held-out sequences", 600.0)
        started = time.perf_counter()
        scores = evaluate(
            model,
            build_held_out_set(task.load(), min(n, 100_000), task.min_length, task.max_length),
        )
        return info | {
            "measured": asdict(scores),
            "measured_seconds": round(time.perf_counter() - started, 2),
        }

    # Publishing

    def _export(self) -> Path:
        """Copy the current checkpoint, because a running run may replace it during the job."""
        from playground.checkpoints.manifest import CheckpointError
        from playground.runs.export import export_checkpoint

        from .errors import HubError

        destination = self.scratch / "checkpoint"
        try:
            return export_checkpoint(
                Path(self.task.checkpoint),
                Path(self.task.run_folder) if self.task.run_folder else None,
                destination,
            )
        except (CheckpointError, FileNotFoundError):
            if Path(self.task.checkpoint).is_dir():
                raise
            raise HubError(
                "a newer checkpoint has replaced this one; try again", retryable=True
            ) from None

    def build(self, checkpoint: Path) -> tuple[Path, Path | None]:
        """Write the package of the model and, on request, of its training set."""
        self.report_loading()
        from playground.checkpoints.manifest import read_manifest

        from .export import build_package
        from .model_card import write_card

        task = self.task
        self.report("Building the package", LOADING_TIMEOUT_S)
        folder, data = self.scratch / "model", None
        folder.mkdir()
        build_package(checkpoint, folder)
        self.report("Writing the model card", 600.0)
        write_card(
            folder,
            checkpoint,
            repo=task.repo,
            dataset=self.dataset_repo_id if task.include_dataset else None,
            revision=task.revision,
            license=task.license,
        )
        if task.include_dataset:
            from playground.hub.dataset_export import export_dataset

            self.report("Generating the training set", 600.0)
            data = self.scratch / "data"
            export_dataset(
                data,
                read_manifest(checkpoint),
                repo=self.dataset_repo_id,
                model=task.repo,
                license=task.license,
            )
        return folder, data

    @property
    def dataset_repo_id(self) -> str:
        """Return the repository of the training set."""
        return f"{self.task.repo}-data"

    def _push_plans(self) -> tuple[list[tuple[Path, Any]], Any]:
        """Return the folders to publish with their plans, the model last, and the manifest.

        Raises:
            HubError: if the token has no write access, or the repository has other content.
        """
        from playground.checkpoints.manifest import read_manifest

        from .errors import ensure_branch, ensure_repo
        from .formats import package_format

        ensure_repo(self.task.repo)
        ensure_branch(self.task.revision)
        checkpoint = self._export()
        package_format(read_manifest(checkpoint).config.architecture)  # raises before any request
        self.connect()
        self.ensure_can_write()
        model, data = self.build(checkpoint)
        self.report("Comparing with the repository")
        repo = {"private": self.task.private, "revision": self.task.revision}
        plans = [(model, self.hub.plan(model, self.task.repo, **repo))]
        if data is not None:
            private = plans[0][1].private  # the training set of a private model is private, too
            plans.insert(
                0,
                (
                    data,
                    self.hub.plan(data, self.dataset_repo_id, repo_type="dataset", private=private),
                ),
            )
        return plans, read_manifest(checkpoint)

    def ensure_can_write(self) -> None:
        """Raise HubError if the token cannot write to the repository's namespace."""
        from .errors import HubError

        account = self.hub.account()
        namespace = self.task.repo.split("/")[0]
        if not account["writes"]:
            raise HubError(
                "this token is read-only: create one with write access, "
                "on the Hub under Settings, Access Tokens"
            )
        if namespace not in (account["name"], *account["orgs"]):
            own = " or ".join((account["name"], *account["orgs"]))
            raise HubError(
                f"the account {account['name']} cannot publish under {namespace}; "
                f"write {own} before the slash"
            )

    def preview(self) -> dict[str, Any]:
        """Return the files that a push would send, without an account or the network."""
        from playground.checkpoints.manifest import read_manifest

        from .errors import ensure_branch, ensure_repo
        from .plan import new_plan

        ensure_repo(self.task.repo)
        ensure_branch(self.task.revision)
        checkpoint = self._export()
        model, data = self.build(checkpoint)
        repo = {"endpoint": self.hub.endpoint, "private": self.task.private}
        plans = [new_plan(model, self.task.repo, revision=self.task.revision, **repo)]
        if data is not None:
            plans.insert(0, new_plan(data, self.dataset_repo_id, kind="dataset", **repo))
        card = (model / "README.md").read_text(encoding="utf-8")
        step = read_manifest(checkpoint).step
        return {
            "plans": [asdict(plan) for plan in plans],
            "card": card,
            "step": step,
            "url": plans[-1].url,
            "compared": False,
        }

    def plan(self) -> dict[str, Any]:
        """Return the changes of a push without writing anything."""
        plans, manifest = self._push_plans()
        card = (plans[-1][0] / "README.md").read_text(encoding="utf-8")
        return {"plans": [asdict(plan) for _, plan in plans], "card": card, "step": manifest.step}

    def push(self) -> dict[str, Any]:
        """Publish the checkpoint."""
        from .errors import HubError

        plans, manifest = self._push_plans()
        if (
            self.task.expected_parent is not None
            and self.task.expected_parent != plans[-1][1].parent
        ):
            raise HubError(
                "another commit was pushed after the preview, and nothing was overwritten; "
                "preview again",
                retryable=True,
            )
        commits = [
            self.hub.push(folder, plan, f"Step {manifest.step}", self.report)
            for folder, plan in plans
        ]
        plan = plans[-1][1]
        where = plan.url if plan.revision == "main" else f"{plan.url}/tree/{plan.revision}"
        return {
            "plans": [asdict(plan) for _, plan in plans],
            "url": where,
            "commit": commits[-1],
            "step": manifest.step,
        }

    # Deployment to a Space

    def _space_plan(self) -> tuple[Path, Any]:
        """Write the files of a Space to a folder, and return it with the plan of the push."""
        from .errors import ensure_repo
        from .space import build_space

        ensure_repo(self.task.repo)
        folder = self.scratch / "space"
        build_space(folder, f"{self.hub.endpoint}/spaces/{self.task.repo}")
        self.connect()
        self.ensure_can_write()
        self.report("Comparing with the repository")
        return folder, self.hub.plan(
            folder, self.task.repo, private=self.task.private, repo_type="space"
        )

    def plan_deploy(self) -> dict[str, Any]:
        """Return the changes of a deployment without writing anything."""
        _, plan = self._space_plan()
        return {"plans": [asdict(plan)]}

    def deploy(self) -> dict[str, Any]:
        """Deploy this version of the playground to a Space in one commit."""
        from playground import __version__

        folder, plan = self._space_plan()
        commit = self.hub.push(folder, plan, f"Transformer Playground {__version__}", self.report)
        return {"plans": [asdict(plan)], "url": plan.url, "commit": commit}


def _gallery_row(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model of the gallery, from its metadata and the scores of its card."""
    from .card_scores import read_scores
    from .client import parse_timestamp

    card = model.get("cardData")
    card = card if isinstance(card, dict) else {}
    own, scores, numbers = card.get("playground"), read_scores(card) or {}, model.get("safetensors")
    return {
        "repo": model["id"],
        "likes": int(model.get("likes") or 0),
        "private": model.get("private") is True,
        "commit": str(model.get("sha") or ""),
        "author": str(model.get("author") or model["id"].split("/")[0]),
        "task": _text(own.get("task")) if isinstance(own, dict) else "",
        "when": parse_timestamp(model["lastModified"]) if model.get("lastModified") else 0,
        "parameters": numbers["total"]
        if isinstance(numbers, dict) and type(numbers.get("total")) is int
        else None,
        "exact_match": scores.get("exact_match"),
        "n": scores.get("n"),
    }


def _text(value: object) -> str:
    return value[:60] if isinstance(value, str) and value.isprintable() else ""
