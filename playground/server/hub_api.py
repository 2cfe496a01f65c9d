"""Request handlers of the Hub tab: publish, list, import and evaluate models.

Every network operation is a job in its own process (hub/publisher.py), which the page polls.

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

from starlette.requests import Request

from playground.checkpoints.manifest import read_manifest
from playground.common.env import secret
from playground.errors import UserError
from playground.hub.formats import package_format
from playground.hub.publisher import AutoPublisher
from playground.hub.repo_ids import LICENSES
from playground.hub.tasks import HubTask
from playground.jobs.job import JobStatus, Response
from playground.models.config_fields import ConfigError
from playground.runs.model_ref import RUN_PREFIX, resolve_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.state import Run

from .checkpoint_transfer import MAX_EXPANSION, MAX_UPLOAD_BYTES
from .routes import Handler, require_owner, respond_with_errors

MAX_FIELD_LENGTH = 200  # characters of a name or a token


def is_space() -> bool:
    return "SPACE_ID" in os.environ


def can_sign_in() -> bool:
    """Return whether users can sign in with Hugging Face here.

    Outside of a Space, the button of Gradio would sign in every user as the owner.
    """
    return is_space() and os.environ.get("SYSTEM") == "spaces" and "OAUTH_CLIENT_ID" in os.environ


def resolve_token(
    payload: Mapping[str, Any], session: Mapping[str, Any], is_single_user: bool
) -> str:
    """Return the token of a request; empty if there is none.

    Raises:
        UserError: if the entered text cannot be a token.
    """
    if is_space():
        oauth_info = session.get("oauth_info")
        if not isinstance(oauth_info, dict) or oauth_info.get("expires_at", 0) < time.time():
            return ""
        token = oauth_info.get("access_token")
        return token if isinstance(token, str) else ""
    entered = payload.get("token")
    if isinstance(entered, str) and entered.strip():
        entered = entered.strip()
        if (
            len(entered) > MAX_FIELD_LENGTH
            or not entered.isascii()
            or not entered.isprintable()
            or " " in entered
        ):
            raise UserError("this token is not valid: copy it again, it begins with hf_")
        return entered
    if is_single_user:
        from huggingface_hub import get_token

        return secret("HF_TOKEN").strip() or get_token() or ""
    return ""


class HubPage:
    """The request handlers of the tab."""

    def __init__(self, registry: Registry, publisher: AutoPublisher) -> None:
        self.registry, self.publisher = registry, publisher

    def handlers(self) -> dict[str, Handler]:
        return {
            "hub/submit": self.start,
            "hub/poll": self.job_status,
            "hub/cancel": self.cancel,
            "hub/session": self.session_info,
            "hub/auto-publish": self.auto_publish,
        }

    @property
    def is_single_user(self) -> bool:
        """Whether this is a local instance."""
        return bool(self.registry.single_owner)

    async def session_info(self, payload: object, request: Request) -> dict[str, Any]:
        """Return how users sign in here and whether this user has; sends no request to the Hub."""
        token = await asyncio.to_thread(
            resolve_token, {}, request.scope.get("session", {}), self.is_single_user
        )
        info = request.scope.get("session", {}).get("oauth_info") if is_space() else None
        name = (
            (info.get("userinfo") or {}).get("preferred_username", "")
            if token and isinstance(info, dict)
            else ""
        )
        method = (
            ("oauth" if can_sign_in() else "none")
            if is_space()
            else "machine"
            if self.is_single_user
            else "typed"
        )
        return {
            "way": method,
            "signed_in": bool(token),
            "name": name,
            "lasting": not is_space() or os.path.isdir("/data"),
        }

    @respond_with_errors
    async def start(self, payload: object, request: Request) -> dict[str, Any]:
        """Start a job; the response contains the `job_status` id or an `error`."""
        payload = payload if isinstance(payload, dict) else {}
        owner = require_owner(payload)
        token = await asyncio.to_thread(
            resolve_token, payload, request.scope.get("session", {}), self.is_single_user
        )
        task, on_result = await asyncio.to_thread(self._build_task, payload, owner, token)
        job = self.publisher.start(task, owner, on_result, refresh=payload.get("again") is True)
        return {"job": job.id}

    def _build_task(self, payload: dict[str, Any], owner: str, token: str) -> tuple[HubTask, Any]:
        kind, repo, revision = (
            _text_field(payload, "kind"),
            _text_field(payload, "repo").strip(),
            _text_field(payload, "revision").strip() or "main",
        )
        limits: dict[str, Any] = {
            "max_bytes": MAX_UPLOAD_BYTES * MAX_EXPANSION,
            "limits": self.registry.settings.limits,
        }
        match kind:
            case "account":
                return HubTask(kind, token=token), None
            case "gallery":
                return HubTask(kind, token=token), None
            case "repo_info" | "reproduce":
                return HubTask(kind, repo, token, revision=revision, **limits), None
            case "pull":
                # Housekeeping removes the folders that a killed server leaves.
                destination = self.registry.root / "runs" / f".pulled-{secrets.token_hex(8)}.tmp"
                task = HubTask(
                    kind, repo, token, revision=revision, destination=str(destination), **limits
                )
                name = repo if payload.get("main") is True else f"{repo} at {revision[:12]}"
                return task, lambda result: self._import_pulled_checkpoint(
                    result, destination, owner, name
                )
            case "plan" | "push":
                if not token:
                    raise UserError("sign in first: publishing needs a token with write access")
                checkpoint, run = self._checkpoint(payload)
                package_format(read_manifest(checkpoint).config.architecture)
                expected_commit = (
                    _text_field(payload, "expected") if "expected" in payload else None
                )
                task = HubTask(
                    kind,
                    repo,
                    token,
                    revision=revision,
                    private=payload.get("private") is True,
                    include_dataset=payload.get("data") is True,
                    license=requested_license(payload),
                    checkpoint=str(checkpoint),
                    run_folder=str(run.folder) if run else "",
                    expected_parent=expected_commit,
                )
                return task, None
        raise UserError(f"{kind[:40]!r} is not a Hub job; reload the page and try again")

    def _checkpoint(self, payload: dict[str, Any]) -> tuple[Path, Run | None]:
        """Return the checkpoint to publish, and its run.

        Raises:
            UserError: if the user does not own it, or it no longer exists.
        """
        run, is_owner = resolve_run(self.registry, payload)
        if run and is_owner:
            checkpoints = run.checkpoints()
            name = _text_field(payload, "checkpoint")
            chosen = next((path for path, _ in checkpoints if not name or path.name == name), None)
            if chosen is None:
                raise UserError(
                    "this run has no such checkpoint; pause it, or wait for the next one"
                )
            return chosen, run
        folder = resolve_checkpoint(self.registry, payload)
        if folder is None:
            raise UserError("choose one of your runs or a checkpoint of this machine")
        return folder, None

    def _import_pulled_checkpoint(
        self, result: Response, folder: Path, owner: str, name: str
    ) -> Response:
        """Import a downloaded checkpoint as a run of the owner.

        Raises:
            UserError: if that fails.
        """
        try:
            run = self.registry.import_checkpoint(folder, owner, name)
        except (UserError, ConfigError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(f"downloaded, but it could not be imported: {error}") from None
        return result | {"subject": RUN_PREFIX + run.id}

    async def job_status(self, payload: object, request: Request) -> dict[str, Any]:
        """Return the status of a job."""
        payload = payload if isinstance(payload, dict) else {}
        job = self.publisher.queue.find(payload.get("job"), _text_field(payload, "owner"))
        if job is None:
            return {
                "status": "failed",
                "message": "this job no longer exists on the server; start it again",
                "again": True,
            }
        status = job.status  # first: the queue sets it last
        is_active = status in (JobStatus.QUEUED, JobStatus.RUNNING)
        return {
            "status": "working" if is_active else "done" if status is JobStatus.DONE else "failed",
            "message": job.message or ("Starting" if is_active else ""),
            "again": job.retryable,
            "result": job.result,
            "kind": job.kind,
        }

    async def cancel(self, payload: object, request: Request) -> dict[str, Any]:
        """Cancel a job of the owner; a gallery is shared and continues."""
        payload = payload if isinstance(payload, dict) else {}
        queue = self.publisher.queue
        job = queue.find(payload.get("job"), _text_field(payload, "owner"))
        if job and job.kind != "gallery":
            queue.cancel(job)
        return {}

    async def auto_publish(self, payload: object, request: Request) -> dict[str, Any]:
        """Start or stop publishing a run during training, and return its state."""
        payload = payload if isinstance(payload, dict) else {}
        run, is_owner = resolve_run(self.registry, payload)
        if run is None or not is_owner:
            return {"auto_publish": None}
        try:
            if payload.get("do") == "stop":
                self.publisher.disable_auto_publish(run)
            elif payload.get("do") == "start":
                token = await asyncio.to_thread(
                    resolve_token, payload, request.scope.get("session", {}), self.is_single_user
                )
                if not token:
                    raise UserError("sign in first: publishing needs a token with write access")
                minutes: Any = payload.get("minutes")
                repo = _text_field(payload, "repo").strip()
                package_format(run.config.architecture)
                self.publisher.enable_auto_publish(
                    run,
                    payload["owner"],
                    repo,
                    token,
                    private=payload.get("private") is True,
                    interval_minutes=minutes,
                    license=requested_license(payload),
                )
        except UserError as error:
            return {"error": str(error), "auto_publish": self.publisher.auto_publish_status(run)}
        return {"auto_publish": self.publisher.auto_publish_status(run)}


def requested_license(payload: Mapping[str, Any]) -> str:
    """Return the licence of a request; empty for the default.

    Raises:
        UserError: if the licence is not known to the Hub.
    """
    license_id = _text_field(payload, "license").strip().lower()
    if license_id and license_id not in LICENSES:
        raise UserError(
            f"the licence {license_id[:60]!r} is not known to the Hub; "
            "enter one such as mit, apache-2.0 or cc-by-4.0"
        )
    return license_id


def _text_field(payload: Mapping[str, Any], name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_FIELD_LENGTH else ""
