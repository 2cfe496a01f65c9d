"""Request handlers of the Hub tab: publish, list, import and evaluate models.

Every network operation is a job in its own process (hub/jobs.py), which the page polls.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.checkpoints.manifest import read_manifest
from playground.common import messages
from playground.errors import UserError, error_text
from playground.hub.formats import package_format
from playground.hub.jobs import HubJobs
from playground.hub.task_runner import HubTask
from playground.jobs.job import JobStatus, Response
from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX, Access, Right, owned_datasets
from playground.runs.registry import Registry

from .checkpoint_transfer import MAX_EXPANSION, MAX_UPLOAD_BYTES
from .hub_token import can_sign_in, is_space, resolve_token
from .routes import HandlerGroup, handler
from .schemas.hub import HubJob, SessionInfo, SubmitHubTask, TaskKind

# By kind: the right that the job needs on the model; None for one that uses none of this server.
RIGHTS_BY_KIND: dict[TaskKind, Right | None] = {
    "account": None,
    "gallery": None,
    "repo_info": None,
    "reproduce": None,
    "pull": None,
    "plan": Right.OWN,
    "push": Right.OWN,
}
OnResult = Callable[[Response], Response]


class HubHandlers(HandlerGroup):
    def __init__(self, registry: Registry, jobs: HubJobs) -> None:
        self.registry, self.jobs = registry, jobs

    @property
    def is_single_user(self) -> bool:
        """Whether this is a local instance."""
        return bool(self.registry.single_owner)

    async def _resolve_token(self, entered: str, http_request: Request) -> str:
        session = http_request.scope.get("session", {})
        return await asyncio.to_thread(resolve_token, entered, session, self.is_single_user)

    @handler("hub/session", SessionInfo)
    async def session_info(self, request: SessionInfo, http_request: Request) -> dict[str, Any]:
        """Return how users sign in here and whether this user has; sends no request to the Hub."""
        token = await self._resolve_token("", http_request)
        info = http_request.scope.get("session", {}).get("oauth_info") if is_space() else None
        user = info.get("userinfo") if token and isinstance(info, dict) else None
        name = user.get("preferred_username") if isinstance(user, dict) else ""
        method = (
            ("oauth" if can_sign_in() else "none")
            if is_space()
            else "machine"
            if self.is_single_user
            else "typed"
        )
        return {
            "method": method,
            "signed_in": bool(token),
            "name": name if isinstance(name, str) else "",
            "lasting": not is_space() or os.path.isdir("/data"),
        }

    @handler("hub/submit", SubmitHubTask, lambda request: RIGHTS_BY_KIND[request.kind])
    async def submit(
        self, request: SubmitHubTask, model: Access | None, http_request: Request
    ) -> dict[str, Any]:
        """Start a job; return its id as `job`."""
        token = await self._resolve_token(request.token, http_request)
        task, on_result = await asyncio.to_thread(self._build_task, request, model, token)
        job = self.jobs.start(task, request.owner, on_result, refresh=request.refresh)
        return {"job": job.id}

    def _build_task(
        self, request: SubmitHubTask, model: Access | None, token: str
    ) -> tuple[HubTask, OnResult | None]:
        if request.kind in ("account", "gallery"):
            return HubTask(request.kind, token=token), None
        if model:
            return self._build_publish_task(request, model, token), None
        revision = request.revision or "main"
        limits: dict[str, Any] = {
            "max_bytes": MAX_UPLOAD_BYTES * MAX_EXPANSION,
            "limits": self.registry.settings.limits,
            "datasets": owned_datasets(self.registry, request.owner),
        }
        task = HubTask(request.kind, request.repo, token, revision=revision, **limits)
        if request.kind != "pull":
            return task, None
        # Housekeeping removes the folders that a killed server leaves.
        destination = self.registry.root / "runs" / f".pulled-{secrets.token_hex(8)}.tmp"
        name = request.repo if request.is_main else f"{request.repo} at {revision[:12]}"

        def on_result(result: Response) -> Response:
            return self._import_pulled_checkpoint(result, destination, request.owner, name)

        return replace(task, destination=str(destination)), on_result

    def _build_publish_task(self, request: SubmitHubTask, model: Access, token: str) -> HubTask:
        if not token:
            raise UserError(messages.SIGN_IN_FIRST)
        checkpoint, run = _published_checkpoint(request, model), model.run
        package_format(read_manifest(checkpoint).config.architecture)
        return HubTask(
            request.kind,
            request.repo,
            token,
            revision=request.revision or "main",
            private=request.private,
            license=request.license,
            page=request.page,
            checkpoint=str(checkpoint),
            run_folder=str(run.folder) if run else "",
            expected_parent=request.expected_parent,
        )

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
            raise UserError(
                f"downloaded, but it could not be imported: {error_text(error)}"
            ) from None
        return result | {"subject": RUN_PREFIX + run.id}

    @handler("hub/poll", HubJob)
    async def poll(self, request: HubJob, _: Request) -> dict[str, Any]:
        job = self.jobs.queue.find(request.job, request.owner)
        if job is None:
            raise UserError(
                "this job no longer exists on the server; start it again", retryable=True
            )
        status = job.status  # first: the queue sets it last
        is_active = status in (JobStatus.QUEUED, JobStatus.RUNNING)
        return {
            "status": "working" if is_active else "done" if status is JobStatus.DONE else "failed",
            "message": job.message or ("Starting" if is_active else ""),
            "retryable": job.retryable,
            "code": job.error_code,
            "result": job.result,
            "kind": job.kind,
        }

    @handler("hub/cancel", HubJob)
    def cancel(self, request: HubJob) -> dict[str, Any]:
        """Cancel a job of the owner; a gallery is shared and continues."""
        queue = self.jobs.queue
        job = queue.find(request.job, request.owner)
        if job and job.kind != "gallery":
            queue.cancel(job)
        return {}


def _published_checkpoint(request: SubmitHubTask, model: Access) -> Path:
    """Return the checkpoint to publish, by default the newest.

    Raises:
        UserError: if the run does not have it.
    """
    if model.run is None:
        return model.folder
    for path, _ in model.run.checkpoints():
        if request.checkpoint in ("", path.name):
            return path
    raise UserError("this run has no such checkpoint; pause it, or wait for the next one")
