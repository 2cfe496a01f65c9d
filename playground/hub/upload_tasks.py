"""Hub jobs that write: publishing a checkpoint, and its interactive page as a static Space."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceCardData

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.env import PAGE_MARK, TAG
from playground.runs.storage_folder import export_checkpoint

from .errors import HubError, NotFoundError
from .existing_card import card_fields, license_of, read_existing_card
from .formats import package_format
from .plan import PAGE, PushPlan, other_content, plan_push
from .repo_ids import check_repo
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
        """Write the package of the model; return its folder, and what stays of the `card`."""
        self.report_loading()
        from .export import build_package
        from .model_card import write_card

        task, existing = self.task, read_existing_card(card)
        self.report("Building the package", LOADING_TIMEOUT_S)
        folder = self.scratch / "model"
        folder.mkdir()
        build_package(checkpoint, folder)
        self.report("Writing the model card", 600.0)
        write_card(folder, checkpoint, repo=task.repo, license=task.license, existing=existing)
        if existing.is_handwritten:
            (folder / "README.md").write_bytes(card)
            return folder, [
                "README.md was written or edited by hand and stays; delete it on the Hub to get a "
                "new card"
            ]
        if existing.license and not task.license:
            return folder, [f"the license of the repository stays: {existing.license_text}"]
        return folder, []

    def _existing_file(self, name: str, kind: str) -> bytes:
        """Return a file of the repository or the Space; empty without one."""
        if self.is_offline:
            return b""
        with suppress(NotFoundError):
            info = self.hub.repo_info(self.task.repo, kind=kind)
            if name in info.sizes:
                folder = self.scratch / f"existing {kind}"
                files = {name: info.sizes[name]}
                self.hub.fetch(self.task.repo, info.sha, files, folder, kind=kind)
                return (folder / name).read_bytes()
        return b""

    def _compare(self, folder: Path, **options: Any) -> PushPlan:
        """Return the plan of a push. Raises HubError if the repository has other content."""
        if self.is_offline:
            return plan_push(folder, self.task.repo, None, endpoint=self.hub.endpoint, **options)
        self.report("Comparing with the repository")
        plan: PushPlan = self.hub.plan(folder, self.task.repo, **options)
        return plan

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
        folder, notes = self.build(checkpoint, self._existing_file("README.md", "model"))
        model = self._compare(folder, private=self.task.private)
        pushes = [(folder, model)]
        if self.task.page:
            pushes.append(self._space_push(checkpoint, folder, model))
        return pushes, read_manifest(checkpoint).step, notes

    def _space_push(
        self, checkpoint: Path, package: Path, model: PushPlan
    ) -> tuple[Path, PushPlan]:
        """Write the files of the Space, whose README.md stays; return their folder and the plan.

        Raises HubError if an existing Space would not show the page, has another one, or shows
        that of a private model to all.
        """
        from playground.reports.interactive_page import write_page

        repo, folder = self.task.repo, self.scratch / "space"
        folder.mkdir()
        page = write_page(checkpoint, checkpoint, repo.split("/")[1])
        (folder / PAGE).write_bytes(page.encode())
        card = self._existing_file("README.md", "space")
        model_card = (package / "README.md").read_text("utf-8", "replace")
        new_card = _space_card(model, license_of(card_fields(model_card)))
        (folder / "README.md").write_bytes(card or new_card.encode())
        space = self._compare(folder, private=model.private, kind="space")
        if card and card_fields(card.decode("utf-8-sig", "replace")).get("sdk") != "static":
            raise HubError(
                f"README.md of the Space {repo} does not have the line “sdk: static”, so the Space "
                "would not show the page; add that line between the two lines “---” at its top, or "
                "publish without the interactive page"
            )
        existing_page = self._existing_file(PAGE, "space")
        if existing_page and PAGE_MARK.encode() not in existing_page:
            raise other_content("space", repo, [PAGE])
        if model.private and not space.private:
            raise HubError(
                f"the Space {repo} is public and the model private, so its page would show the "
                "model to all; make the Space private, or publish without the interactive page"
            )
        return folder, space

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
        self, pushes: list[tuple[Path, PushPlan]], step: int, notes: list[str]
    ) -> dict[str, Any]:
        """Return plans and card in JSON; `space` is the plan of the Space, or None."""
        card = (pushes[0][0] / "README.md").read_text(encoding="utf-8", errors="replace")
        model, space = (*(asdict(plan) for _, plan in pushes), None)[:2]
        return {"plan": model, "space": space, "card": card, "step": step, "notes": notes}

    def plan(self) -> dict[str, Any]:
        """Return the changes of a push without writing anything."""
        return self._describe(*self._push_plans())

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
        return self._describe(pushes, step, notes) | {"url": plan.url, "commit": commit}


def _space_card(model: PushPlan, license: Mapping[str, Any]) -> str:
    data = SpaceCardData(
        title=model.repo.split("/")[1],
        emoji="🔀",
        colorFrom="blue",
        colorTo="green",
        sdk="static",
        app_file=PAGE,
        **license,
        models=[model.repo],
        tags=[TAG],
        short_description="Switch off parts of a transformer",
    )
    text = f"The model [{model.repo}]({model.url}) runs in this page."
    return f"---\n{data.to_yaml()}\n---\n\n{text}\n"
