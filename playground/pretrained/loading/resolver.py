"""Resolve the name of a model to files on this machine, and describe the available models."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter

from .cache import cached_snapshot, describe_cache, list_cached_names, mark_as_used
from .download import download, fetch_model_info, files_to_download, open_hub
from .model_files import (
    Check,
    ResolvedModel,
    check_config,
    has_chat_template,
    inspect_folder,
    kind_of,
    memory_needed,
    read_config,
)
from .model_names import local_folder, local_paths_allowed, validate_name


def resolve(
    name: str, progress: ProgressReporter, check: Check | None = None, local_only: bool = False
) -> ResolvedModel:
    """Return a model's files on this machine; download them if necessary, unless `local_only`.

    `check` reads the config and the tokenizer before any weights are downloaded or read. Raises
    UserError with the name of the model, or JobCancelled at most 0.2 s after a cancellation.
    """
    name = validate_name(name)

    def check_files(name: str, folder: Path) -> None:
        check_config(name, folder)
        if check:
            check(name, folder)

    if folder := local_folder(name):
        check_files(name, folder)
        return inspect_folder(name, folder, "", "directory")
    location, cached_folder = "cache", cached_snapshot(name)
    if cached_folder:
        check_files(name, cached_folder)
    elif local_only:
        raise UserError(f"{name} is not on this machine yet{describe_cache()}")
    else:
        location, cached_folder = "downloaded", download(name, progress, check_files)
    if not local_only:
        mark_as_used(cached_folder.parent.parent)
    return inspect_folder(name, cached_folder, cached_folder.name, location)


def describe_models(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Describe models without a download. `request`: {"models": [names]}.

    For each: name, location ("directory", "cache", "hub" or empty), bytes, parameters, memory, kind
    (causal, masked or empty), has_chat_template, and a sentence with the `code` of the error if it
    cannot be used.
    """
    names = request.get("models")
    rows: list[dict[str, Any]] = []
    hub: Any = None
    for name in (names if isinstance(names, list) else [])[:8]:
        progress.raise_if_cancelled()
        row: dict[str, Any] = {"name": str(name)[:200], "location": "", "kind": ""}
        row |= {"bytes": None, "parameters": None, "message": "", "code": ""}
        row |= {"memory": None}
        row["has_chat_template"] = False
        try:
            row["name"] = checked = validate_name(name)
            if local_folder(checked) or cached_snapshot(checked):
                row |= _describe_local(checked, progress)
            else:
                hub = hub or open_hub()
                row |= _describe_remote(hub, checked)
            if parameters := row["parameters"]:
                row["memory"] = memory_needed(parameters)
        except UserError as error:
            row |= {"message": str(error), "code": error.code}
        rows.append(row)
        progress.row(row)
    return {"models": rows, "folders": local_paths_allowed()}


def _describe_local(name: str, progress: ProgressReporter) -> dict[str, Any]:
    resolved = resolve(name, progress, local_only=True)
    return {
        "location": resolved.location,
        "bytes": resolved.bytes,
        "parameters": resolved.parameters,
        "kind": kind_of(read_config(resolved.folder, name)),
        "has_chat_template": has_chat_template(Path(resolved.folder)),
    }


def _describe_remote(hub: Any, name: str) -> dict[str, Any]:
    info = fetch_model_info(hub, name)
    numbers, config = info.get("safetensors"), info.get("config")
    small, weights = files_to_download(info, name)
    total = numbers.get("total") if isinstance(numbers, dict) else None
    return {
        "location": "hub",
        "bytes": sum((small | weights).values()),
        "parameters": total if type(total) is int else None,
        "kind": kind_of(config) if isinstance(config, dict) else "",
        "has_chat_template": "chat_template.jinja" in small,
    }


def list_cached(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return the models that can be used without a network."""
    rows = []
    for name in list_cached_names():
        with suppress(UserError):
            rows.append({"name": resolve(name, progress, local_only=True).name})
    return {"models": rows, "folders": local_paths_allowed()}
