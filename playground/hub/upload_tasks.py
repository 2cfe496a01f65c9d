"""Hub jobs that write: publishing a checkpoint."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .repo_ids import PAGE, Phase
from .task_runner import LOADING_TIMEOUT_S, TaskRunner


class UploadTasks(TaskRunner):
    """The jobs that write to the Hub, and those that show what they would write."""

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

    def build(self, checkpoint: Path, card: bytes = b"") -> tuple[Path, list[str]]:
        """Write the package of the model; `card` is that of the repository.

        Returns the folder, and what stays of the card.
        """
        self.report_loading()
        from .existing_card import read_existing_card
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
            revision=task.revision,
            license=task.license,
            existing=(existing := read_existing_card(card)),
        )
        if task.page:
            from playground.reports.interactive_page import write_page

            page = write_page(checkpoint, checkpoint, task.repo.split("/")[1])
            (folder / PAGE).write_text(page, encoding="utf-8")
        if existing.is_handwritten:
            (folder / "README.md").write_bytes(card)
            return folder, [
                "README.md was written or edited by hand and stays; delete it on the Hub to get a "
                "new card"
            ]
        if existing.license and not task.license:
            return folder, [f"the license of the repository stays: {existing.license_text}"]
        return folder, []

    def _existing_card(self) -> bytes:
        """Return the card of the repository; empty without one."""
        from .errors import NotFoundError

        for revision in dict.fromkeys((self.task.revision, "main")):
            with suppress(NotFoundError):
                info = self.hub.repo_info(self.task.repo, revision)
                if (size := info.sizes.get("README.md")) is None:
                    return b""
                folder = self.scratch / "existing"
                self.hub.fetch(self.task.repo, info.sha, {"README.md": size}, folder)
                return (folder / "README.md").read_bytes()
        return b""

    def _push_plan(self) -> tuple[Path, Any, Any, list[str]]:
        """Return the folder to publish, its plan, the manifest, and what stays of the card.

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
        folder, notes = self.build(checkpoint, self._existing_card())
        self.report("Comparing with the repository")
        plan = self.hub.plan(
            folder, self.task.repo, private=self.task.private, revision=self.task.revision
        )
        if self.task.page:
            from .static_space import ensure_own_space

            ensure_own_space(self.hub, self.task.repo, private=plan.private)
        return folder, plan, read_manifest(checkpoint), notes

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
        folder, _ = self.build(checkpoint)
        plan = new_plan(
            folder,
            self.task.repo,
            endpoint=self.hub.endpoint,
            revision=self.task.revision,
            private=self.task.private,
        )
        card = (folder / "README.md").read_text(encoding="utf-8")
        step = read_manifest(checkpoint).step
        return {
            "plan": asdict(plan),
            "card": card,
            "step": step,
            "url": plan.url,
            "compared": False,
        }

    def plan(self) -> dict[str, Any]:
        """Return the changes of a push without writing anything."""
        folder, plan, manifest, notes = self._push_plan()
        card = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
        return {"plan": asdict(plan), "card": card, "step": manifest.step, "notes": notes}

    def push(self) -> dict[str, Any]:
        """Publish the checkpoint."""
        from .errors import HubError

        folder, plan, manifest, notes = self._push_plan()
        if self.task.expected_parent is not None and self.task.expected_parent != plan.parent:
            raise HubError(
                "another commit was pushed after the preview, and nothing was overwritten; "
                "preview again",
                retryable=True,
            )
        commit = self.hub.push(folder, plan, f"Step {manifest.step}", self.report)
        space = ""
        if self.task.page:
            from .static_space import push_space

            self.report("Writing the Space", LOADING_TIMEOUT_S, Phase.COMMITTING)
            space = push_space(self.hub, folder, plan.repo, private=plan.private)
        where = plan.url if plan.revision == "main" else f"{plan.url}/tree/{plan.revision}"
        return {
            "plan": asdict(plan),
            "url": where,
            "commit": commit,
            "step": manifest.step,
            "notes": notes,
            "space": space,
        }
