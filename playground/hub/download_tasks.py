"""Hub jobs that read: the gallery, the content of a repository, downloads, evaluations.

A method reports before it imports PyTorch, which may take minutes.
"""

import shutil
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import Manifest, read_manifest
from playground.common import messages
from playground.common.atomic_write import replacing_dir
from playground.common.platform import rename
from playground.runs.limits import ensure_memory_available
from playground.runs.storage_folder import CHECKPOINT_FILES
from playground.runs.summary import task_label
from playground.tasks import LOOKUP

from .errors import HubError
from .existing_card import read_scores
from .plan import RepoInfo
from .repo_ids import MANIFEST
from .tasks import LOADING_TIMEOUT_S, TaskRunner

MAX_TEXT_BYTES = 1_000_000  # bytes of a card or a manifest


class DownloadTasks(TaskRunner):
    """The jobs that read from the Hub."""

    def gallery(self) -> dict[str, Any]:
        self.report("Connecting to the Hub")
        rows: list[dict[str, Any]] = []
        for model in self.hub.gallery():
            # One malformed card must not hide the other models.
            with suppress(TypeError, ValueError, AttributeError, OverflowError):
                rows.append(_gallery_row(model))
        return {"models": rows}

    # Inspecting and downloading

    def repo_info(self) -> dict[str, Any]:
        repo, manifest, card = self._inspect_repo()
        return self._describe_repo(repo, manifest, card)

    def _inspect_repo(self) -> tuple[RepoInfo, Manifest, str]:
        """Return a repository's metadata, manifest and card, without loading the model."""
        repo = self.task.repo
        self.report(f"Inspecting {repo}")
        repo_info = self.hub.repo_info(repo, self.task.revision)
        sizes = repo_info.sizes
        if MANIFEST not in sizes or "model.safetensors" not in sizes:
            missing = MANIFEST if MANIFEST not in sizes else "model.safetensors"
            raise HubError(f"{repo} is not a model of the playground: {missing} is missing")
        if sizes[MANIFEST] > MAX_TEXT_BYTES:
            raise HubError(
                f"{MANIFEST} of {repo} has {sizes[MANIFEST]:,} bytes; "
                f"at most {MAX_TEXT_BYTES:,} are accepted"
            )
        texts = {
            name: sizes[name]
            for name in (MANIFEST, "README.md")
            if sizes.get(name, MAX_TEXT_BYTES + 1) <= MAX_TEXT_BYTES
        }
        folder = self.scratch / "inspected"
        self.hub.fetch(repo, repo_info.sha, texts, folder)
        rename(folder / MANIFEST, folder / "config.json")
        has_card = "README.md" in texts
        card = (folder / "README.md").read_text("utf-8", "replace") if has_card else ""
        return repo_info, read_manifest(folder), card

    def _describe_repo(self, repo: RepoInfo, manifest: Manifest, card: str) -> dict[str, Any]:
        self.report_loading()
        model = manifest.config.model
        return {
            "repo": repo.id,
            "commit": repo.sha,
            "likes": repo.likes or 0,
            "private": bool(repo.private),
            "task": task_label(manifest.config),
            "shape": [model.n_layers, model.attention_heads, model.d_model],
            "parameters": parameter_count(model),
            "step": manifest.step,
            "seconds": manifest.seconds,
            "device": manifest.device,
            "card": read_scores(card),
            "resumable": "training.safetensors" in repo.sizes,
        }

    def _download(self, destination: Path) -> dict[str, Any]:
        """Download a checkpoint into a folder, and validate it."""
        about, manifest, card = self._inspect_repo()
        self.report_loading()
        from playground.runs.inspector_process import validate_checkpoint

        from .export import checkpoint_from_package

        info, task = self._describe_repo(about, manifest, card), manifest.config.task
        owned = self.task.datasets
        if task.task == LOOKUP and owned is not None and task.dataset_sha256 not in owned:
            raise HubError(messages.missing_dataset(task.dataset_sha256))
        self.task.limits.validate(manifest.config)
        ensure_memory_available(manifest.config)
        files = {
            name: about.sizes[name]
            for name in (MANIFEST, *CHECKPOINT_FILES[1:])
            if name in about.sizes
        }
        if (size := sum(files.values())) > self.task.max_bytes:
            raise HubError(
                f"{self.task.repo} has {size / 1e6:.0f} MB; at most "
                f"{self.task.max_bytes // 1_000_000} MB are accepted here"
            )
        package = self.scratch / "package"
        self.hub.fetch(self.task.repo, about.sha, files, package, self.report)
        self.report("Validating the weights", LOADING_TIMEOUT_S)
        checkpoint_from_package(package, destination)
        validate_checkpoint(str(destination))
        return info

    def pull(self) -> dict[str, Any]:
        """Download a published model to `destination`, which appears when it is complete."""
        info = self._download(self.scratch / "checkpoint")
        with replacing_dir(Path(self.task.destination)) as folder:  # the caller has checked it
            shutil.copytree(self.scratch / "checkpoint", folder, dirs_exist_ok=True)
        return info

    def reproduce(self) -> dict[str, Any]:
        """Evaluate a published model on as many held-out sequences as its card reports."""
        folder = self.scratch / "checkpoint"
        info = self._download(folder)
        from playground.checkpoints.checkpoint import load_model
        from playground.evaluation import evaluate
        from playground.tasks.held_out import build_held_out_set

        manifest, model = load_model(folder)
        task = manifest.config.task
        n = (info["card"] or {}).get("n") or 2000
        self.report(f"Evaluating {n:,} held-out sequences", 600.0)
        started = time.perf_counter()
        lengths = task.min_length, task.max_length
        scores = evaluate(model, build_held_out_set(task.load(), min(n, 100_000), *lengths))
        seconds = round(time.perf_counter() - started, 2)
        return info | {"measured": asdict(scores), "measured_seconds": seconds}


def _gallery_row(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model of the gallery, from its metadata and the scores of its card."""
    card = model.get("cardData")
    card = card if isinstance(card, dict) else {}
    own, scores = card.get("playground"), read_scores(card) or {}
    total = (model.get("safetensors") or {}).get("total")
    return {
        "repo": model["id"],
        "likes": int(model.get("likes") or 0),
        "private": model.get("private") is True,
        "commit": str(model.get("sha") or ""),
        "author": model["id"].split("/")[0],
        "task": _text(own.get("task")) if isinstance(own, dict) else "",
        "parameters": total if type(total) is int else None,
        "exact_match": scores.get("exact_match"),
        "n": scores.get("n"),
    }


def _text(value: object) -> str:
    return value[:60] if isinstance(value, str) and value.isprintable() else ""
