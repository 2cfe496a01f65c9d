"""Request handlers of the Hub tab: publish, list, import and evaluate models.

Every network operation is a job in its own process (hub/jobs.py), which the page polls.

On a Space the token is that of the user who signed in with Hugging Face, never that of the Space.
A local instance uses the token of `hf auth login`. A local or shared instance outside of a Space
also accepts a token that the user enters on the page. It is used for that job and not stored.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.hub.forms import CannotPublish, form_of
from playground.hub.jobs import Busy, Job, Jobs, cancel
from playground.hub.names import LICENSES
from playground.hub.work import Errand
from playground.models.config import SettingError
from playground.runs.registry import Registry
from playground.runs.run import Refused, Run
from playground.training.environment import secret
from playground.training.manifest import CheckpointError, read_manifest

from .asked import Answerer
from .subject import RUN, checkpoint_folder, run_on_show
from .transfer import LARGEST_UPLOAD, UNPACKED
from .view import view
from .visit import OWNER

SCRIPTS = ("common.js", "hub.js")
LONGEST = 200  # characters of a name or a token


def on_a_space() -> bool:
    return "SPACE_ID" in os.environ


def can_sign_in() -> bool:
    """Return whether users can sign in with Hugging Face here.

    Outside of a Space, the button of Gradio would sign in every user as the owner.
    """
    return on_a_space() and os.environ.get("SYSTEM") == "spaces" and "OAUTH_CLIENT_ID" in os.environ


def hub_view() -> gr.HTML:
    """Return the view; its value is {"owner": owner key of the page}."""
    return view("hub", ("common.css", "hub.css"), SCRIPTS)


def token_of(what: Mapping[str, Any], session: Mapping[str, Any], local: bool) -> str:
    """Return the token of a request; empty if there is none.

    Raises:
        Refused: if the entered text cannot be a token.
    """
    if on_a_space():
        signed_in = session.get("oauth_info")
        if not isinstance(signed_in, dict) or signed_in.get("expires_at", 0) < time.time():
            return ""
        token = signed_in.get("access_token")
        return token if isinstance(token, str) else ""
    typed = what.get("token")
    if isinstance(typed, str) and typed.strip():
        typed = typed.strip()
        if len(typed) > LONGEST or not typed.isascii() or not typed.isprintable() or " " in typed:
            raise Refused("this token is not valid: copy it again, it begins with hf_")
        return typed
    if local:
        from huggingface_hub import get_token

        return secret("HF_TOKEN").strip() or get_token() or ""
    return ""


class HubPage:
    """The request handlers of the tab."""

    def __init__(self, registry: Registry, jobs: Jobs) -> None:
        self.registry, self.jobs = registry, jobs

    def answerers(self) -> dict[str, Answerer]:
        return {
            "hub-start": self.start,
            "hub-job": self.job,
            "hub-cancel": self.cancel,
            "hub-who": self.who,
            "hub-keep": self.keep,
        }

    @property
    def local(self) -> bool:
        """Whether this is a local instance."""
        return bool(self.registry.local_owner)

    async def who(self, what: object, request: Request) -> dict[str, Any]:
        """Return how users sign in here and whether this user has; sends no request to the Hub."""
        found = await asyncio.to_thread(token_of, {}, request.scope.get("session", {}), self.local)
        info = request.scope.get("session", {}).get("oauth_info") if on_a_space() else None
        name = (
            (info.get("userinfo") or {}).get("preferred_username", "")
            if found and isinstance(info, dict)
            else ""
        )
        way = (
            ("oauth" if can_sign_in() else "none")
            if on_a_space()
            else "machine"
            if self.local
            else "typed"
        )
        return {
            "way": way,
            "signed_in": bool(found),
            "name": name,
            "lasting": not on_a_space() or os.path.isdir("/data"),
        }

    async def start(self, what: object, request: Request) -> dict[str, Any]:
        """Start a job; the response contains the `job` id or an `error`."""
        what = what if isinstance(what, dict) else {}
        try:
            owner = _text(what, "owner")
            if not OWNER.fullmatch(owner):
                raise Refused("the request has no valid owner key; reload the page and try again")
            token = await asyncio.to_thread(
                token_of, what, request.scope.get("session", {}), self.local
            )
            errand, on_done = await asyncio.to_thread(self._errand, what, owner, token)
            return {
                "job": self.jobs.start(errand, owner, on_done, anew=what.get("again") is True).id
            }
        except (Refused, CannotPublish, CheckpointError, OSError) as error:
            return {"error": str(error), "again": isinstance(error, Busy)}

    def _errand(self, what: dict[str, Any], owner: str, token: str) -> tuple[Errand, Any]:
        kind, repo, revision = (
            _text(what, "kind"),
            _text(what, "repo").strip(),
            _text(what, "revision").strip() or "main",
        )
        allowed: dict[str, Any] = {
            "largest": LARGEST_UPLOAD * UNPACKED,
            "limits": self.registry.limits,
        }
        match kind:
            case "account":
                return Errand(kind, token=token), _nothing
            case "gallery":
                return Errand(kind, token=token), _nothing
            case "look" | "reproduce":
                return Errand(kind, repo, token, revision=revision, **allowed), _nothing
            case "pull":
                # Housekeeping removes the folders that a killed server leaves.
                into = self.registry.root / "runs" / f".pulled-{secrets.token_hex(8)}.tmp"
                errand = Errand(kind, repo, token, revision=revision, into=str(into), **allowed)
                name = repo if what.get("main") is True else f"{repo} at {revision[:12]}"
                return errand, lambda job: self._arrived(job, into, owner, name)
            case "plan" | "push":
                if not token:
                    raise Refused("sign in first: publishing needs a token with write access")
                checkpoint, run = self._checkpoint(what)
                form_of(read_manifest(checkpoint).config.family)
                seen = _text(what, "expected") if "expected" in what else None
                errand = Errand(
                    kind,
                    repo,
                    token,
                    revision=revision,
                    private=what.get("private") is True,
                    with_data=what.get("data") is True,
                    license=license_in(what),
                    checkpoint=str(checkpoint),
                    run=str(run.folder) if run else "",
                    expected=seen,
                )
                return errand, _nothing
        raise Refused(f"{kind[:40]!r} is not a Hub job; reload the page and try again")

    def _checkpoint(self, what: dict[str, Any]) -> tuple[Path, Run | None]:
        """Return the checkpoint to publish, and its run.

        Raises:
            Refused: if the user does not own it, or it no longer exists.
        """
        run, own = run_on_show(self.registry, what)
        if run and own:
            found = run.checkpoints()
            name = _text(what, "checkpoint")
            wanted = next((path for path, _ in found if not name or path.name == name), None)
            if wanted is None:
                raise Refused("this run has no such checkpoint; pause it, or wait for the next one")
            return wanted, run
        folder = checkpoint_folder(self.registry, what)
        if folder is None:
            raise Refused("choose one of your runs or a checkpoint of this machine")
        return folder, None

    def _arrived(self, job: Job, into: Path, owner: str, name: str) -> None:
        """Import a downloaded checkpoint as a run of the owner."""
        if job.status != "done" or job.result is None:
            return
        try:
            run = self.registry.adopt(into, owner, name)
            job.result["subject"] = RUN + run.id
        except (Refused, CheckpointError, SettingError, OSError) as error:
            job.status, job.sentence, job.result = (
                "failed",
                f"downloaded, but it could not be imported: {error}",
                None,
            )
            shutil.rmtree(into, ignore_errors=True)

    async def job(self, what: object, request: Request) -> dict[str, Any]:
        """Return the status of a job."""
        what = what if isinstance(what, dict) else {}
        job = self.jobs.find(what.get("job"), _text(what, "owner"))
        return (
            job.told()
            if job
            else {
                "status": "failed",
                "sentence": "this job no longer exists on the server; start it again",
                "again": True,
            }
        )

    async def cancel(self, what: object, request: Request) -> dict[str, Any]:
        """Cancel a job of the owner; a gallery is shared and continues."""
        what = what if isinstance(what, dict) else {}
        job = self.jobs.find(what.get("job"), _text(what, "owner"))
        if job and job.errand.kind != "gallery":
            cancel(job)
        return {}

    async def keep(self, what: object, request: Request) -> dict[str, Any]:
        """Start or stop publishing a run during training, and return its state."""
        what = what if isinstance(what, dict) else {}
        run, own = run_on_show(self.registry, what)
        if run is None or not own:
            return {"kept": None}
        try:
            if what.get("do") == "stop":
                self.jobs.stop_pushing(run)
            elif what.get("do") == "start":
                token = await asyncio.to_thread(
                    token_of, what, request.scope.get("session", {}), self.local
                )
                if not token:
                    raise Refused("sign in first: publishing needs a token with write access")
                minutes: Any = what.get("minutes")
                repo = _text(what, "repo").strip()
                form_of(run.config.family)
                self.jobs.keep_pushing(
                    run,
                    what["owner"],
                    repo,
                    token,
                    private=what.get("private") is True,
                    minutes=minutes,
                    license=license_in(what),
                )
        except (Refused, CannotPublish) as error:
            return {"error": str(error), "kept": self.jobs.kept(run)}
        return {"kept": self.jobs.kept(run)}


def license_in(what: Mapping[str, Any]) -> str:
    """Return the licence of a request; empty for the default.

    Raises:
        Refused: if the licence is not known to the Hub.
    """
    named = _text(what, "license").strip().lower()
    if named and named not in LICENSES:
        raise Refused(
            f"the licence {named[:60]!r} is not known to the Hub; "
            "enter one such as mit, apache-2.0 or cc-by-4.0"
        )
    return named


def _nothing(job: Job) -> None:
    """Do nothing after a job without further steps."""


def _text(what: Mapping[str, Any], name: str) -> str:
    value = what.get(name)
    return value if isinstance(value, str) and len(value) <= LONGEST else ""
