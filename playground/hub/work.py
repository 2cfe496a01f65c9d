"""One errand on the Hub, in a process of its own: whatever hangs there, the page does not, and what is ended leaves nothing half
done, because a push is one commit and a pull is a folder that counts only when it is whole.

Up the pipe go ("say", sentence, further seconds of silence, phase), then
either ("result", dictionary) or ("failed", sentence, whether to try again).
The kinds of errand, and what they result in:

    account      whose token it is
    gallery      the models that carry the playground's tag
    look         what a repository holds, without loading it
    preview      what publishing a checkpoint would send, without an account and without the network
    plan, push   what publishing a checkpoint changes; then the same, done
    pull         a checkpoint in `into`
    reproduce    the score of a published model measured here, beside the one that its card gives
    stage, deploy  what putting the playground itself on a Space changes; then the same, done
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
MOST_FILES = 100  # listed
LOADING_FOR = 600.0  # seconds that imports may take on a busy machine, at low priority
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
    """What to do. Paths are texts; the token stands in no repr, hence in no log."""

    kind: str
    repo: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    revision: str = "main"
    private: bool = False
    with_data: bool = False
    license: str = ""  # of what is published; empty: what `card.default_license` says
    checkpoint: str = ""
    run: str = ""  # the run's folder, where the metrics are
    into: str = ""
    expected: str | None = (
        None  # the commit that the owner has seen, empty for none; None: whatever is there
    )
    largest: int = LARGEST_PULL
    limits: Limits = field(default_factory=Limits)  # of the server that what is fetched is for


def work(pipe: Connection, errand: Errand, scratch: str) -> None:
    """The entry of the process. `scratch`: an empty folder, which whoever started it takes away, however this ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(QUIET | ({"HF_ENDPOINT": errand.endpoint} if errand.endpoint else {}))
    from playground.training.manifest import CheckpointError

    from .client import Hub, HubError, prepare

    try:
        prepare()
        threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
        if hasattr(os, "nice"):
            os.nice(
                10
            )  # the page comes first; beside training, which is as patient, it gets its share
        if errand.kind not in KINDS:
            raise HubError(f"{errand.kind!r} is nothing that can be done on the Hub")
        runner = Runner(Hub(errand.token, errand.endpoint), errand, pipe, Path(scratch))
        message: tuple[Any, ...] = ("result", getattr(runner, errand.kind)())
    except HubError as error:
        message = ("failed", str(error), error.again)
    except (CheckpointError, ValueError) as error:
        plain = str(error).replace(
            f"{scratch}/looked/config.json", "playground.json"
        )  # its name in the repository
        message = ("failed", re.sub(rf"{re.escape(scratch)}/\w+/?", "", plain), False)
    except OSError as error:
        message = (
            "failed",
            f"this machine could not do it: {error.strerror or type(error).__name__}",
            True,
        )
    except MemoryError:
        message = ("failed", "there is not enough memory for it now", True)
    except Exception as error:  # the message may hold a token; the lines of the traceback hold none
        where = "".join(traceback.format_tb(error.__traceback__))
        log.error("the Hub job %s failed with %s at:\n%s", errand.kind, type(error).__name__, where)
        message = (
            "failed",
            f"it went wrong in a way that nobody foresaw ({type(error).__name__})",
            True,
        )
    with suppress(OSError):
        pipe.send(message)
    pipe.close()


def _end_with(pipe: Connection) -> None:
    """End when whoever wanted this has gone: nobody would hear of it."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)


class Runner:
    """Does one errand; a method for each kind."""

    def __init__(self, hub: Any, errand: Errand, pipe: Connection, scratch: Path) -> None:
        self.hub, self.errand, self.pipe, self.scratch = hub, errand, pipe, scratch

    def say(self, sentence: str, patience: float = 0.0, phase: Phase = Phase.READING) -> None:
        """Report what is being done, how many seconds of silence beyond the default it may take, and the phase."""
        with suppress(OSError):
            self.pipe.send(("say", sentence, patience, phase))

    def say_loading(self) -> None:
        """Report that imports begin, which a busy machine may take minutes for; call it before the first of them."""
        self.say("Loading PyTorch", LOADING_FOR)

    def reach(self) -> None:
        self.say("Reaching the Hub")
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
            with suppress(
                TypeError, ValueError, AttributeError, OverflowError
            ):  # one odd card must not empty the list
                rows.append(_row(model))
        return {"models": rows}

    # Looking and fetching

    def look(self) -> dict[str, Any]:
        from .client import HubError

        self.reach()
        about, manifest, card = self.inspected()
        told = self.described(about, manifest, card)
        with suppress(HubError):  # the list of older ones is a courtesy
            told["revisions"] = self.hub.revisions(self.errand.repo, self.errand.revision)
            told["branches"] = self.hub.branches(self.errand.repo)
        return told

    def inspected(self) -> tuple[Any, Any, str]:
        """What a repository holds: what the Hub tells, its manifest and its card. Nothing of it is loaded.

        Raises:
            HubError: when it holds no playground model, or too much.
        """
        from playground.training.manifest import read_manifest

        from .client import HubError, Missing
        from .names import MANIFEST

        repo = self.errand.repo
        self.say(f"Looking at {repo}")
        try:
            about = self.hub.look(repo, self.errand.revision)
        except Missing:
            if self.errand.revision == "main":
                raise
            branches = self.hub.branches(
                repo
            )  # raises its own error where there is no such repository
            known = (
                f"the branch {branches[0]}"
                if len(branches) == 1
                else f"one of the branches {', '.join(branches[:10])}"
            )
            raise HubError(
                f"{repo} has no revision {self.errand.revision}; take {known}, or a commit by its hash"
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
            raise HubError(
                f"{repo} is no model of the playground: it has no {lacking}, so it stays unopened{look}"
            )
        if sizes[MANIFEST] > LARGEST_TEXT:
            raise HubError(
                f"{MANIFEST} of {repo} has {sizes[MANIFEST]:,} bytes, which no playground writes; it stays unopened"
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
            "repo": about.id, "commit": about.sha, "likes": about.likes, "private": about.private, "files": files,
            "files_in_all": len(about.files),
            "task": task_in_words(manifest.config), "shape": [model.n_layers, model.n_heads, model.d_model],
            "parameters": model.parameter_count(), "step": manifest.step, "seconds": manifest.seconds, "device": manifest.device,
            "card": read_scores(card), "resumable": "training.safetensors" in about.sizes,
        }  # fmt: skip

    def fetched(self, into: Path) -> dict[str, Any]:
        """Fetch a checkpoint into a folder, checked."""
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
                f"{self.errand.repo} has {sum(wanted.values()) / 1e6:.0f} MB, more than the {most} that are fetched here"
            )
        package = self.scratch / "package"
        self.hub.fetch(self.errand.repo, about.sha, wanted, package, self.say)
        self.say("Looking at every number", LOADING_FOR)
        to_checkpoint(package, into)
        Inspector().check(into)
        return told

    def pull(self) -> dict[str, Any]:
        """A published model as a checkpoint in `into`, which appears when it is whole and checked."""
        self.reach()
        into = Path(self.errand.into)
        told = self.fetched(self.scratch / "checkpoint")
        into.parent.mkdir(parents=True, exist_ok=True)
        partial = into.with_name(f".{into.name}.tmp")
        shutil.rmtree(partial, ignore_errors=True)  # of a pull that was killed
        shutil.copytree(self.scratch / "checkpoint", partial)
        if into.is_dir():
            into.rmdir()  # it was looked at before: it is empty
        os.rename(partial, into)
        return told

    def reproduce(self) -> dict[str, Any]:
        """A published model's score, measured here on as many sequences as its card names."""
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
        self.say(f"Asking it {n:,} held-out sequences", 600.0)
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
        """The checkpoint as it is now: what comes next takes a while, and a run that goes on replaces its own."""
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
                "this checkpoint has just been replaced by a newer one; try again", again=True
            ) from None

    def package(self, checkpoint: Path) -> tuple[Path, Path | None]:
        """The files of the model and, if wanted, of its training set."""
        self.say_loading()
        from playground.training.manifest import read_manifest

        from .card import write_card
        from .package import build_package

        errand = self.errand
        self.say("Putting the model together", LOADING_FOR)
        folder, data = self.scratch / "model", None
        folder.mkdir()
        build_package(checkpoint, folder)
        self.say("Writing its card", 600.0)
        write_card(
            folder, checkpoint, repo=errand.repo, dataset=self.data_repo if errand.with_data else None, revision=errand.revision,
            license=errand.license,
        )  # fmt: skip
        if errand.with_data:
            from playground.data import write_dataset

            self.say("Drawing its training set again", 600.0)
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
        """Where the training set goes."""
        return f"{self.errand.repo}-data"

    def plans(self) -> tuple[list[tuple[Path, Any]], Any]:
        """What is to be published, as folders with their plans, the model's last; and the checkpoint's manifest.

        Raises:
            HubError: when the token may not, or something else is there.
        """
        from playground.training.manifest import read_manifest

        from .client import check_branch, check_repo
        from .forms import form_of

        check_repo(self.errand.repo)
        check_branch(self.errand.revision)
        checkpoint = self.gathered()
        form_of(read_manifest(checkpoint).config.family)  # refuses before the network is used
        self.reach()
        self.check_may_write()
        model, data = self.package(checkpoint)
        self.say("Comparing with what is there")
        asked = {"private": self.errand.private, "revision": self.errand.revision}
        plans = [(model, self.hub.plan(model, self.errand.repo, **asked))]
        if data is not None:
            private = plans[0][
                1
            ].private  # the training set of a private model is no more public than it
            plans.insert(
                0, (data, self.hub.plan(data, self.data_repo, kind="dataset", private=private))
            )
        return plans, read_manifest(checkpoint)

    def check_may_write(self) -> None:
        """Raises HubError where this token cannot write under that name, before anything is made."""
        from .client import HubError

        who = self.hub.account()
        namespace = self.errand.repo.split("/")[0]
        if not who["writes"]:
            raise HubError(
                "this token only reads: make one that may write, on the Hub under Settings, Access Tokens"
            )
        if namespace not in (who["name"], *who["orgs"]):
            own = " or ".join((who["name"], *who["orgs"]))
            raise HubError(
                f"the account {who['name']} may not publish under {namespace}; put {own} before the slash"
            )

    def preview(self) -> dict[str, Any]:
        """What a push would send, compared with nothing: neither an account nor the network is used."""
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
        """What a push would do; nothing is written."""
        plans, manifest = self.plans()
        card = (plans[-1][0] / "README.md").read_text(encoding="utf-8")
        return {"plans": [asdict(plan) for _, plan in plans], "card": card, "step": manifest.step}

    def push(self) -> dict[str, Any]:
        """Publish."""
        from .client import HubError

        plans, manifest = self.plans()
        if self.errand.expected is not None and self.errand.expected != plans[-1][1].parent:
            raise HubError(
                "somebody else has pushed since you looked, and nothing was overwritten; look again",
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

    # A Space of the playground itself

    def staged(self) -> tuple[Path, Any]:
        """The files of a Space in a folder, and the plan to bring them there."""
        from .client import check_repo
        from .space import build_space

        check_repo(self.errand.repo)
        folder = self.scratch / "space"
        build_space(folder, f"{self.hub.endpoint}/spaces/{self.errand.repo}")
        self.reach()
        self.check_may_write()
        self.say("Comparing with what is there")
        return folder, self.hub.plan(
            folder, self.errand.repo, private=self.errand.private, kind="space"
        )

    def stage(self) -> dict[str, Any]:
        """What deploying would do; nothing is written."""
        _, plan = self.staged()
        return {"plans": [asdict(plan)]}

    def deploy(self) -> dict[str, Any]:
        """Bring this version of the playground to a Space, in one commit."""
        from playground import __version__

        folder, plan = self.staged()
        commit = self.hub.push(folder, plan, f"Transformer Playground {__version__}", self.say)
        return {"plans": [asdict(plan)], "url": plan.url, "commit": commit}


def _row(model: dict[str, Any]) -> dict[str, Any]:
    """A model in the gallery, from what the Hub tells of it and what its card claims."""
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
