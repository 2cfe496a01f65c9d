"""The sign-in of the Hub tab, and the jobs of the Hub: publish, list, import and evaluate models.

Every network operation is a job in its own process (hub/jobs.py), which the page polls.
"""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from pydantic import AfterValidator
from starlette.requests import Request

from playground.checkpoints.manifest import read_manifest
from playground.common import messages
from playground.common.platform import SPACE_STORAGE_DIR
from playground.common.validation import parse
from playground.errors import UserError, error_text
from playground.hub.formats import package_format
from playground.hub.jobs import HubJobs
from playground.hub.repo_ids import check_license
from playground.hub.tasks import HubTask
from playground.jobs.job import Job, Response
from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX, Access, Right, owned_datasets, require
from playground.runs.registry import Registry

from .checkpoint_transfer import MAX_EXPANSION, MAX_UPLOAD_BYTES
from .hub_token import can_sign_in, is_space, resolve_token
from .routes import HandlerGroup, handler
from .schemas.base import Name, RequestBody, SubmitJob, Token

OnResult = Callable[[Response], Response]
# By kind: the right that the job needs on the selected model; None for one that uses none.
RIGHTS_BY_HUB_KIND: dict[str, Right | None] = {
    "account": None,
    "gallery": None,
    "repo_info": None,
    "reproduce": None,
    "pull": None,
    "plan": Right.OWN,
    "push": Right.OWN,
}


Stripped = Annotated[Name, AfterValidator(str.strip)]
License = Annotated[Name, AfterValidator(check_license)]


class HubRequest(RequestBody):
    """The request of a job of the Hub."""

    repo: Stripped = ""
    token: Token = ""
    private: bool = False
    license: License = ""
    page: bool = False  # publish the interactive page too
    revision: Stripped = ""
    expected_parent: Name | None = None
    is_main: bool = False  # the revision is the main branch
    refresh: bool = False


class HubSession(TypedDict):
    method: Literal["oauth", "none", "machine", "typed"]
    signed_in: bool
    name: str
    lasting: bool  # whether the runs of the server outlive its restart


class HubHandlers(HandlerGroup):
    @handler("hub/session", RequestBody, HubSession)
    async def session_info(self, request: RequestBody, http_request: Request) -> dict[str, Any]:
        """Return how users sign in here and whether this user has; sends no request to the Hub."""
        session, is_local = http_request.scope.get("session", {}), bool(self.registry.single_owner)
        token = await asyncio.to_thread(resolve_token, "", session, is_local)
        info = session.get("oauth_info") if is_space() else None
        user = info.get("userinfo") if token and isinstance(info, dict) else None
        name = user.get("preferred_username") if isinstance(user, dict) else ""
        method = "machine" if is_local else "typed"
        if is_space():
            method = "oauth" if can_sign_in() else "none"
        return {
            "method": method,
            "signed_in": bool(token),
            "name": name if isinstance(name, str) else "",
            "lasting": not is_space() or SPACE_STORAGE_DIR.is_dir(),
        }


def start_hub_job(
    registry: Registry,
    jobs: HubJobs,
    request: SubmitJob,
    model: Access | None,
    session: Mapping[str, Any],
) -> Job:
    """Start a job of the Hub with the token of its requester, or raise UserError."""
    fields = parse(HubRequest, request.request)
    token = resolve_token(fields.token, session, bool(registry.single_owner))
    on_result: OnResult | None = None
    if request.kind in ("account", "gallery"):
        task = HubTask(request.kind, token=token)
    elif request.kind in ("plan", "push"):
        model = model or require(registry, request, Right.OWN)
        task = _publish_task(request.kind, fields, model, token)
    else:
        task = HubTask(
            request.kind,
            fields.repo,
            token,
            revision=fields.revision or "main",
            max_bytes=MAX_UPLOAD_BYTES * MAX_EXPANSION,
            limits=registry.settings.limits,
            datasets=owned_datasets(registry, request.owner),
        )
    if request.kind == "pull":
        folder = registry.storage.new_scratch()
        task = replace(task, destination=str(folder))
        name = fields.repo if fields.is_main else f"{fields.repo} at {task.revision[:12]}"

        def on_result(result: Response) -> Response:
            return _import_pulled_checkpoint(registry, result, folder, request.owner, name)

    return jobs.start(task, request.owner, fields.refresh, on_result=on_result)


def _publish_task(kind: str, fields: HubRequest, model: Access, token: str) -> HubTask:
    if not token:
        raise UserError(messages.SIGN_IN_FIRST)
    run, checkpoint = model.run, model.newest_checkpoint()
    package_format(read_manifest(checkpoint).config.architecture)
    return HubTask(
        kind,
        fields.repo,
        token,
        private=fields.private,
        license=fields.license,
        page=fields.page,
        checkpoint=str(checkpoint),
        run_folder=str(run.folder) if run else "",
        expected_parent=fields.expected_parent,
    )


def _import_pulled_checkpoint(
    registry: Registry, result: Response, folder: Path, owner: str, name: str
) -> Response:
    """Import a downloaded checkpoint as a run of the owner, or raise UserError."""
    try:
        run = registry.import_checkpoint(folder, owner, name)
    except (UserError, ConfigError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"downloaded, but it could not be imported: {error_text(error)}") from None
    return result | {"subject": RUN_PREFIX + run.id}
