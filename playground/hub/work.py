"""Run one Hub job in its own process.

A hanging job cannot block the page, and a killed job leaves no partial state: a push is one commit,
and a pull moves a complete folder into place.

The process sends ("say", message, extra seconds without messages, phase) through the pipe, then
either ("result", dictionary) or ("failed", message, whether a retry may succeed). The kinds of job
and their results:

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
import signal
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playground.runs.limits import Limits

from .names import Phase

QUIET = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}
LARGEST_PULL = 200_000_000  # bytes
LARGEST_TEXT = 1_000_000  # bytes of a card or a manifest
MOST_FILES = 100  # in the list of files
LOADING_FOR = 600.0  # seconds for imports on a busy machine at low priority
log = logging.getLogger(__name__)
KINDS = (
    "account",
    "gallery",
    "look",
    "preview",
    "plan",
    "push",
    "pull",
    "reproduce",
    "stage",
    "deploy",
)


@dataclass(frozen=True)
class Errand:
    """The specification of a job. Paths are strings; the repr, and so the log, omits the token."""

    kind: str
    repo: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    revision: str = "main"
    private: bool = False
    with_data: bool = False
    license: str = ""  # of the published model; empty for that of `card.default_license`
    checkpoint: str = ""
    run: str = ""  # the folder of the run, which contains the metrics
    into: str = ""
    # The commit that the owner has previewed, empty for none; None accepts any commit.
    expected: str | None = None
    largest: int = LARGEST_PULL
    limits: Limits = field(default_factory=Limits)  # of the server, for downloaded models


def work(pipe: Connection, errand: Errand, scratch: str) -> None:
    """Run a job; the entry point of the process.

    The caller creates the empty folder `scratch`, and removes it when the process has ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(QUIET | ({"HF_ENDPOINT": errand.endpoint} if errand.endpoint else {}))
    from playground.training.manifest import CheckpointError

    from .client import Hub, HubError, prepare

    try:
        prepare()
        threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
        if hasattr(os, "nice"):
            os.nice(10)  # the priority of training, which is below that of the page
        if errand.kind not in KINDS:
            raise HubError(f"{errand.kind!r} is not a Hub job; use one of {', '.join(KINDS)}")
        runner = Runner(Hub(errand.token, errand.endpoint), errand, pipe, Path(scratch))
        message: tuple[Any, ...] = ("result", getattr(runner, errand.kind)())
    except HubError as error:
        message = ("failed", str(error), error.again)
    except (CheckpointError, ValueError) as error:
        # The name of the manifest in the repository.
        plain = str(error).replace(f"{scratch}/looked/config.json", "playground.json")
        message = ("failed", re.sub(rf"{re.escape(scratch)}/\w+/?", "", plain), False)
    except OSError as error:
        message = (
            "failed",
            f"the server has a file error: {error.strerror or type(error).__name__}; try again",
            True,
        )
    except MemoryError:
        message = ("failed", "the server has not enough memory now; try again later", True)
    except Exception as error:  # the message may contain a token; the traceback lines do not
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("the Hub job %s failed with %s at:\n%s", errand.kind, type(error).__name__, where)
        message = (
            "failed",
            f"unexpected error ({type(error).__name__}); try again",
            True,
        )
    with suppress(OSError):
        pipe.send(message)
    pipe.close()


def _end_with(pipe: Connection) -> None:
    """End this process when the process that started it has ended."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)


class Runner:
    """The runner of one job, with a method for each kind of job."""

    def __init__(self, hub: Any, errand: Errand, pipe: Connection, scratch: Path) -> None:
        self.hub, self.errand, self.pipe, self.scratch = hub, errand, pipe, scratch

    def say(self, sentence: str, patience: float = 0.0, phase: Phase = Phase.READING) -> None:
        """Report the current operation, its extra seconds without messages, and its phase."""
        with suppress(OSError):
            self.pipe.send(("say", sentence, patience, phase))

    def say_loading(self) -> None:
        """Report that imports begin, which may take minutes; call it before the first import."""
        self.say("Loading PyTorch", LOADING_FOR)

    def reach(self) -> None:
        self.say("Connecting to the Hub")
        self.hub.reach()

    def account(self) -> dict[str, Any]:
        self.reach()
        return dict(self.hub.account())

    def gallery(self) -> dict[str, Any]:
        self.reach()
        rows: list[dict[str, Any]] = []
        models = self.hub.gallery()
        self.say_loading()
        for model in models:
            # One malformed card must not hide the other models.
            with suppress(TypeError, ValueError, AttributeError, OverflowError):
                rows.append(_row(model))
        return {"models": rows}

    # Inspecting and downloading

    def look(self) -> dict[str, Any]:
        from .client import HubError

        self.reach()
        about, manifest, card = self.inspected()
        told = self.described(about, manifest, card)
        with suppress(HubError):  # the older revisions are optional
            told["revisions"] = self.hub.revisions(self.errand.repo, self.errand.revision)
            told["branches"] = self.hub.branches(self.errand.repo)
        return told

    def inspected(self) -> tuple[Any, Any, str]:
        """Return a repository's metadata, manifest and card, without loading the model.

        Raises:
            HubError: if it has no playground model, or a file is too large.
        """
        from playground.training.manifest import read_manifest

        from .client import HubError, Missing
        from .names import MANIFEST

        repo = self.errand.repo
        self.say(f"Inspecting {repo}")
        try:
            about = self.hub.look(repo, self.errand.revision)
        except Missing:
            if self.errand.revision == "main":
                raise
            branches = self.hub.branches(repo)  # raises HubError for a missing repository
            known = (
                f"the branch {branches[0]}"
                if len(branches) == 1
                else f"one of the branches {', '.join(branches[:10])}"
            )
            raise HubError(
                f"{repo} has no revision {self.errand.revision}; use {known}, "
                "or the hash of a commit"
            ) from None
        sizes = about.sizes
        if MANIFEST not in sizes or "model.safetensors" not in sizes:
            lacking = MANIFEST if MANIFEST not in sizes else "model.safetensors"
            others: list[str] = []
            with suppress(HubError):
                others = [
                    branch for branch in self.hub.branches(repo) if branch != self.errand.revision
                ]
            look = f"; it has other branches, open one as {repo}@{others[0]}" if others else ""
            raise HubError(f"{repo} is not a model of the playground: {lacking} is missing{look}")
        if sizes[MANIFEST] > LARGEST_TEXT:
            raise HubError(
                f"{MANIFEST} of {repo} has {sizes[MANIFEST]:,} bytes; "
                f"at most {LARGEST_TEXT:,} are accepted"
            )
        texts = {
            name: sizes[name]
            for name in (MANIFEST, "README.md")
            if sizes.get(name, LARGEST_TEXT + 1) <= LARGEST_TEXT
        }
        folder = self.scratch / "looked"
        self.hub.fetch(repo, about.sha, texts, folder)
        (folder / MANIFEST).rename(folder / "config.json")
        manifest = read_manifest(folder)
        card = (
            (folder / "README.md").read_text(encoding="utf-8", errors="replace")
            if "README.md" in texts
            else ""
        )
        return about, manifest, card

    def described(self, about: Any, manifest: Any, card: str) -> dict[str, Any]:
        self.say_loading()
        from playground.runs.run import task_in_words

        from .card import read_scores
        from .client import in_words

        model = manifest.config.model
        files = [
            {"path": file.path, "size": in_words(file.size)} for file in about.files[:MOST_FILES]
        ]
        return {
            "repo": about.id,
            "commit": about.sha,
            "likes": about.likes,
            "private": about.private,
            "files": files,
            "files_in_all": len(about.files),
            "task": task_in_words(manifest.config),
            "shape": [model.n_layers, model.n_heads, model.d_model],
            "parameters": model.parameter_count(),
            "step": manifest.step,
            "seconds": manifest.seconds,
            "device": manifest.device,
            "card": read_scores(card),
            "resumable": "training.safetensors" in about.sizes,
        }

    def fetched(self, into: Path) -> dict[str, Any]:
        """Download a checkpoint into a folder, and validate it."""
        self.say_loading()
        from playground.runs.gather import FILES
        from playground.runs.inspector import Inspector
        from playground.runs.memory import check_memory

        from .client import HubError
        from .names import MANIFEST
        from .package import to_checkpoint

        about, manifest, card = self.inspected()
        told = self.described(about, manifest, card)
        self.errand.limits.check(manifest.config)
        check_memory(manifest.config)
        wanted = {name: about.sizes[name] for name in (MANIFEST, *FILES[1:]) if name in about.sizes}
        if sum(wanted.values()) > self.errand.largest:
            most = f"{self.errand.largest // 1_000_000} MB"
            raise HubError(
                f"{self.errand.repo} has {sum(wanted.values()) / 1e6:.0f} MB; "
                f"at most {most} are accepted here"
            )
        package = self.scratch / "package"
        self.hub.fetch(self.errand.repo, about.sha, wanted, package, self.say)
        self.say("Validating the weights", LOADING_FOR)
        to_checkpoint(package, into)
        Inspector().check(into)
        return told

    def pull(self) -> dict[str, Any]:
        """Download a published model to `into`, which appears when it is complete and valid."""
        self.reach()
        into = Path(self.errand.into)
        told = self.fetched(self.scratch / "checkpoint")
        into.parent.mkdir(parents=True, exist_ok=True)
        partial = into.with_name(f".{into.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)  # left by a killed pull
        shutil.copytree(self.scratch / "checkpoint", partial)
        if into.is_dir():
            into.rmdir()  # the caller has checked that it is empty
        os.rename(partial, into)
        return told

    def reproduce(self) -> dict[str, Any]:
        """Evaluate a published model on as many held-out sequences as its card reports."""
        self.reach()
        self.say_loading()
        from playground.evaluation import evaluate
        from playground.tasks.held_out import held_out_set
        from playground.training.checkpoint import load_model

        folder = self.scratch / "checkpoint"
        told = self.fetched(folder)
        manifest, family = load_model(folder)
        task = manifest.config.task
        n = (told["card"] or {}).get("n") or 2000
        self.say(f"Evaluating {n:,} held-out sequences", 600.0)
        started = time.perf_counter()
        scores = evaluate(
            family, held_out_set(task.load(), min(n, 100_000), task.min_length, task.max_length)
        )
        return told | {
            "measured": asdict(scores),
            "measured_seconds": round(time.perf_counter() - started, 2),
        }

    # Publishing

    def gathered(self) -> Path:
        """Copy the current checkpoint, because a running run may replace it during the job."""
        from playground.runs.gather import gather
        from playground.training.manifest import CheckpointError

        from .client import HubError

        into = self.scratch / "checkpoint"
        try:
            return gather(
                Path(self.errand.checkpoint),
                Path(self.errand.run) if self.errand.run else None,
                into,
            )
        except (CheckpointError, FileNotFoundError):
            if Path(self.errand.checkpoint).is_dir():
                raise
            raise HubError(
                "a newer checkpoint has replaced this one; try again", again=True
            ) from None

    def package(self, checkpoint: Path) -> tuple[Path, Path | None]:
        """Write the package of the model and, on request, of its training set."""
        self.say_loading()
        from playground.training.manifest import read_manifest

        from .card import write_card
        from .package import build_package

        errand = self.errand
        self.say("Building the package", LOADING_FOR)
        folder, data = self.scratch / "model", None
        folder.mkdir()
        build_package(checkpoint, folder)
        self.say("Writing the model card", 600.0)
        write_card(
            folder,
            checkpoint,
            repo=errand.repo,
            dataset=self.data_repo if errand.with_data else None,
            revision=errand.revision,
            license=errand.license,
        )
        if errand.with_data:
            from playground.data import write_dataset

            self.say("Generating the training set", 600.0)
            data = self.scratch / "data"
            write_dataset(
                data,
                read_manifest(checkpoint),
                repo=self.data_repo,
                model=errand.repo,
                license=errand.license,
            )
        return folder, data

    @property
    def data_repo(self) -> str:
        """Return the repository of the training set."""
        return f"{self.errand.repo}-data"

    def plans(self) -> tuple[list[tuple[Path, Any]], Any]:
        """Return the folders to publish with their plans, the model last, and the manifest.

        Raises:
            HubError: if the token has no write access, or the repository has other content.
        """
        from playground.training.manifest import read_manifest

        from .client import check_branch, check_repo
        from .forms import form_of

        check_repo(self.errand.repo)
        check_branch(self.errand.revision)
        checkpoint = self.gathered()
        form_of(read_manifest(checkpoint).config.family)  # raises before any request
        self.reach()
        self.check_may_write()
        model, data = self.package(checkpoint)
        self.say("Comparing with the repository")
        asked = {"private": self.errand.private, "revision": self.errand.revision}
        plans = [(model, self.hub.plan(model, self.errand.repo, **asked))]
        if data is not None:
            private = plans[0][1].private  # the training set of a private model is private, too
            plans.insert(
                0, (data, self.hub.plan(data, self.data_repo, kind="dataset", private=private))
            )
        return plans, read_manifest(checkpoint)

    def check_may_write(self) -> None:
        """Raise HubError if the token cannot write to the repository's namespace."""
        from .client import HubError

        who = self.hub.account()
        namespace = self.errand.repo.split("/")[0]
        if not who["writes"]:
            raise HubError(
                "this token is read-only: create one with write access, "
                "on the Hub under Settings, Access Tokens"
            )
        if namespace not in (who["name"], *who["orgs"]):
            own = " or ".join((who["name"], *who["orgs"]))
            raise HubError(
                f"the account {who['name']} cannot publish under {namespace}; "
                f"write {own} before the slash"
            )

    def preview(self) -> dict[str, Any]:
        """Return the files that a push would send, without an account or the network."""
        from playground.training.manifest import read_manifest

        from .client import check_branch, check_repo, new_plan

        check_repo(self.errand.repo)
        check_branch(self.errand.revision)
        checkpoint = self.gathered()
        model, data = self.package(checkpoint)
        asked = {"endpoint": self.hub.endpoint, "private": self.errand.private}
        plans = [new_plan(model, self.errand.repo, revision=self.errand.revision, **asked)]
        if data is not None:
            plans.insert(0, new_plan(data, self.data_repo, kind="dataset", **asked))
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
        plans, manifest = self.plans()
        card = (plans[-1][0] / "README.md").read_text(encoding="utf-8")
        return {"plans": [asdict(plan) for _, plan in plans], "card": card, "step": manifest.step}

    def push(self) -> dict[str, Any]:
        """Publish the checkpoint."""
        from .client import HubError

        plans, manifest = self.plans()
        if self.errand.expected is not None and self.errand.expected != plans[-1][1].parent:
            raise HubError(
                "another commit was pushed after the preview, and nothing was overwritten; "
                "preview again",
                again=True,
            )
        commits = [
            self.hub.push(folder, plan, f"Step {manifest.step}", self.say) for folder, plan in plans
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

    def staged(self) -> tuple[Path, Any]:
        """Write the files of a Space to a folder, and return it with the plan of the push."""
        from .client import check_repo
        from .space import build_space

        check_repo(self.errand.repo)
        folder = self.scratch / "space"
        build_space(folder, f"{self.hub.endpoint}/spaces/{self.errand.repo}")
        self.reach()
        self.check_may_write()
        self.say("Comparing with the repository")
        return folder, self.hub.plan(
            folder, self.errand.repo, private=self.errand.private, kind="space"
        )

    def stage(self) -> dict[str, Any]:
        """Return the changes of a deployment without writing anything."""
        _, plan = self.staged()
        return {"plans": [asdict(plan)]}

    def deploy(self) -> dict[str, Any]:
        """Deploy this version of the playground to a Space in one commit."""
        from playground import __version__

        folder, plan = self.staged()
        commit = self.hub.push(folder, plan, f"Transformer Playground {__version__}", self.say)
        return {"plans": [asdict(plan)], "url": plan.url, "commit": commit}


def _row(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model of the gallery, from its metadata and the scores of its card."""
    from .card import read_scores
    from .client import moment

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
        "when": moment(model["lastModified"]) if model.get("lastModified") else 0,
        "parameters": numbers["total"]
        if isinstance(numbers, dict) and type(numbers.get("total")) is int
        else None,
        "exact_match": scores.get("exact_match"),
        "n": scores.get("n"),
    }


def _text(value: object) -> str:
    return value[:60] if isinstance(value, str) and value.isprintable() else ""
