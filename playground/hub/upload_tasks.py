"""Hub jobs that write: publishing a checkpoint."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceCardData

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.env import PAGE_MARK, TAG
from playground.runs.storage_folder import export_checkpoint

from .errors import HubError, NotFoundError
from .existing_card import OWN_FIELD, card_fields, license_of, read_existing_card, signed_card
from .formats import package_format
from .plan import PushPlan, other_content, plan_push
from .repo_ids import PAGE, check_repo
from .tasks import LOADING_TIMEOUT_S, TaskRunner


class UploadTasks(TaskRunner):
    """The jobs that write to the Hub, and those that show what they would write.

    A preview sends no request: it is the plan for a new repository.
    """

    @property
    def is_offline(self) -> bool:
        return self.task.kind == "preview"

    def _export(self) -> Path:
        """Copy the current checkpoint, because a running run may replace it during the job."""
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

    def build(self, checkpoint: Path, card: bytes) -> tuple[Path, list[str]]:
        """Write the package of the model; `card` is that of the repository.

        Returns the folder, and what stays of the card.
        """
        self.report_loading()
        from .export import build_package
        from .model_card import write_card

        task = self.task
        self.report("Building the package", LOADING_TIMEOUT_S)
        folder = self.scratch / "model"
        folder.mkdir()
        build_package(checkpoint, folder)
        self.report("Writing the model card", 600.0)
        write_card(
            folder,
            checkpoint,
            repo=task.repo,
            license=task.license,
            existing=(existing := read_existing_card(card)),
        )
        if task.page:
            from playground.reports.interactive_page import write_page

            page = write_page(checkpoint, checkpoint, task.repo.split("/")[1])
            (folder / PAGE).write_bytes(page.encode())
        if existing.is_handwritten:
            (folder / "README.md").write_bytes(card)
            return folder, [
                "README.md was written or edited by hand and stays; delete it on the Hub to get a "
                "new card"
            ]
        if existing.license and not task.license:
            return folder, [f"the license of the repository stays: {existing.license_text}"]
        return folder, []

    def _existing_card(self, kind: str) -> bytes:
        """Return the card of the repository or the Space; empty without one."""
        if not self.is_offline:
            with suppress(NotFoundError):
                return self._fetch_existing("README.md", kind)
        return b""

    def _fetch_existing(self, name: str, kind: str) -> bytes:
        """Return a file of the repository or the Space; empty without one."""
        info = self.hub.repo_info(self.task.repo, kind=kind)
        if (size := info.sizes.get(name)) is None:
            return b""
        folder = self.scratch / f"existing {kind}"
        self.hub.fetch(self.task.repo, info.sha, {name: size}, folder, kind=kind)
        return (folder / name).read_bytes()

    def _compare(self, folder: Path, **options: Any) -> PushPlan:
        """Return the plan of a push, which leaves an index.html that is not an exported page.

        Raises HubError if the repository has other content where the push would write.
        """
        if self.is_offline:
            return plan_push(folder, self.task.repo, None, endpoint=self.hub.endpoint, **options)
        self.report("Comparing with the repository")
        plan = self.hub.plan(folder, self.task.repo, **options)
        statuses = {change.path: change.status for change in plan.changes}
        if statuses.get(PAGE) not in ("changed", "removed"):
            return plan
        if PAGE_MARK.encode() in self._fetch_existing(PAGE, plan.kind):
            return plan
        if statuses[PAGE] == "changed":
            raise other_content(plan.kind, plan.repo, [PAGE])
        others = tuple(change for change in plan.changes if change.path != PAGE)
        return replace(plan, changes=others)

    def _push_plans(self) -> tuple[list[tuple[Path, PushPlan]], int, list[str]]:
        """Return each folder to publish with its plan, the step, and what stays as it is.

        The first folder is that of the model, the second one that of its Space. Raises HubError if
        the token has no write access, or a repository has other content.
        """
        check_repo(self.task.repo)
        checkpoint = self._export()
        package_format(read_manifest(checkpoint).config.architecture)  # raises before any request
        if not self.is_offline:
            self.ensure_can_write()
        folder, notes = self.build(checkpoint, self._existing_card("model"))
        model = self._compare(folder, private=self.task.private)
        pushes = [(folder, model)]
        card = self._existing_card("space") if self.task.page else b""
        if self.task.page:
            space_folder = self.scratch / "space"
            write_space(folder, space_folder, model.repo, model.url, card)
            space = self._compare(space_folder, private=model.private, kind="space")
            if model.private and not space.private:
                raise HubError(
                    f"the Space {space.repo} is public and the model private, so its page would "
                    "show the model to all; make the Space private, or publish without the "
                    "interactive page"
                )
            notes += owner_card_notes(space.repo, card)
            pushes.append((space_folder, space))
        return pushes, read_manifest(checkpoint).step, notes

    def ensure_can_write(self) -> None:
        """Raise HubError if the token cannot write to the repository's namespace."""
        account = self.account()
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
        result = self.plan()
        return result | {"url": result["plan"]["url"], "compared": False}

    def _describe(
        self, folder: Path, plans: list[PushPlan], step: int, notes: list[str]
    ) -> dict[str, Any]:
        """Return plans and card in JSON; `space` is the plan of the Space, or None."""
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
        model, space = (*map(asdict, plans), None)[:2]
        return {"plan": model, "space": space, "card": card, "step": step, "notes": notes}

    def plan(self) -> dict[str, Any]:
        """Return the changes of a push without writing anything."""
        pushes, step, notes = self._push_plans()
        plans = [plan for _, plan in pushes]
        return self._describe(pushes[0][0], plans, step, notes)

    def push(self) -> dict[str, Any]:
        """Publish the checkpoint, and then its Space."""
        pushes, step, notes = self._push_plans()
        (folder, plan), *spaces = pushes
        if self.task.expected_parent is not None and self.task.expected_parent != plan.parent:
            raise HubError(
                "another commit was pushed after the preview, and nothing was overwritten; "
                "preview again",
                retryable=True,
            )
        commit = self.hub.push(folder, plan, f"Step {step}", self.report)
        try:
            for space_folder, space in spaces:
                self.hub.push(space_folder, space, f"Step {step}", self.report)
        except HubError as error:
            raise HubError(
                f"the model was published, but its Space was not: {error}",
                retryable=error.retryable,
            ) from None
        result = self._describe(folder, [plan for _, plan in pushes], step, notes)
        return result | {"url": plan.url, "commit": commit}


def write_space(package: Path, folder: Path, repo: str, model_url: str, existing: bytes) -> None:
    """Write the files of the Space of a package into a new folder.

    `existing` is the card of the Space, which stays if its owner wrote or edited it.
    """
    folder.mkdir()
    shutil.copyfile(package / PAGE, folder / PAGE)
    if _stays(existing):
        (folder / "README.md").write_bytes(existing)
        return
    license = license_of(card_fields((package / "README.md").read_text("utf-8", "replace")))
    (folder / "README.md").write_bytes(_card(repo, model_url, license).encode())


def owner_card_notes(repo: str, existing: bytes) -> list[str]:
    """Return a note if the card of a Space stays.

    Raises HubError if that card is not of a static Space: no other one shows the page.
    """
    if not _stays(existing):
        return []
    if card_fields(existing.decode("utf-8-sig", "replace")).get("sdk") != "static":
        raise HubError(
            f"README.md of the Space {repo} does not have the line “sdk: static”, so the Space "
            "would not show the page; add that line between the two lines “---” at its top, or "
            "publish without the interactive page"
        )
    return [
        "README.md of the Space was written or edited by hand and stays; delete it on the Hub to "
        "get a new one"
    ]


def _stays(existing: bytes) -> bool:
    card = read_existing_card(existing)
    return card.is_handwritten or bool(card.license)


def _card(repo: str, model_url: str, license: Mapping[str, Any]) -> str:
    own: dict[str, Any] = {OWN_FIELD: {"license": license.get("license")}}
    data = SpaceCardData(
        title=repo.split("/")[1],
        emoji="🔀",
        colorFrom="blue",
        colorTo="green",
        sdk="static",
        app_file=PAGE,
        **license,
        models=[repo],
        tags=[TAG],
        short_description="Switch off parts of a transformer",
        **own,
    )
    return signed_card(data, f"The model [{repo}]({model_url}) runs in this page.\n")
