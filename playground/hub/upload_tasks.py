"""Hub jobs that write: publishing a checkpoint with its dataset, deploying to a Space."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

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
