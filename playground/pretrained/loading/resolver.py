"""Resolve the name of a model to files on this machine, and describe the available models."""

from dataclasses import asdict
from typing import Any

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter

from .cache import cached_snapshot, describe_cache, list_cached_names, mark_as_used
from .download import connect_to_hub, download, fetch_model_info, files_to_download
from .model_files import ResolvedModel, inspect_folder, kind_of, max_model_bytes, read_config
from .model_names import DEFAULT_MODELS, local_folder, local_paths_allowed, validate_name


def resolve(name: str, progress: ProgressReporter, local_only: bool = False) -> ResolvedModel:
    """Return a model's files on this machine; download them if necessary, unless `local_only`.

    Raises:
        UserError: with the name of the model and what to do.
        JobCancelled: at most 0.2 s after the job was cancelled.
    """
    name = validate_name(name)
    if folder := local_folder(name):
        return inspect_folder(name, folder, "", "directory")
    if cached_folder := cached_snapshot(name):
        if not local_only:
            mark_as_used(cached_folder.parent.parent)
        return inspect_folder(name, cached_folder, cached_folder.name, "cache")
    if local_only:
        raise UserError(f"{name} is not on this machine yet{describe_cache()}")
    folder = download(name, progress)
    mark_as_used(folder.parent.parent)
    return inspect_folder(name, folder, folder.name, "downloaded")


def describe_models(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Describe models without a download. `request`: {"models": [names]}.

    For each: name, location ("directory", "cache", "hub" or empty), bytes, parameters, kind
    (causal, masked or empty), a sentence with the `code` of the error if it cannot be used, and
    whether that is because the Hub was `hub_unreachable`.
    """
    names = request.get("models", [request.get("name")])
    info: list[dict[str, Any]] = []
    hub: Any = None
    for name in (names if isinstance(names, list) else [])[:8]:
        progress.raise_if_cancelled()
        row: dict[str, Any] = {
            "name": str(name)[:200],
            "location": "",
            "bytes": None,
            "parameters": None,
            "kind": "",
            "message": "",
            "code": "",
        }
        row["hub_unreachable"] = False
        try:
            try:
                resolved = resolve(name, progress, local_only=True)
                row |= {
                    key: value
                    for key, value in asdict(resolved).items()
                    if key in ("name", "location", "bytes", "parameters", "commit")
                }
                row["kind"] = kind_of(read_config(resolved.folder, resolved.name))
            except UserError:
                row["name"] = checked = validate_name(name)
                if cached_snapshot(checked) or local_folder(checked):
                    raise
                row["hub_unreachable"] = hub is None
                hub = hub or connect_to_hub()
                row["hub_unreachable"] = False
                response = fetch_model_info(hub, checked)
                files = files_to_download(response, checked)
                numbers = response.get("safetensors")
                row |= {
                    "location": "hub",
                    "bytes": sum(files.values()),
                    "commit": str(response.get("sha") or ""),
                }
                row["parameters"] = (
                    numbers.get("total")
                    if isinstance(numbers, dict) and type(numbers.get("total")) is int
                    else None
                )
                config = response.get("config")
                row["kind"] = kind_of(config) if isinstance(config, dict) else ""
        except UserError as error:
            row |= {"message": str(error), "code": error.code}
        info.append(row)
        progress.row(row)
    return {"models": info, "max_bytes": max_model_bytes(), "folders": local_paths_allowed()}


def list_cached(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return the models that can be used without a network, and those in memory."""
    rows = []
    for name in list_cached_names():
        try:
            resolved = resolve(name, progress, local_only=True)
        except UserError:
            continue
        rows.append(
            {
                "name": name,
                "bytes": resolved.bytes,
                "parameters": resolved.parameters,
                "commit": resolved.commit,
                "kind": kind_of(read_config(resolved.folder, name)),
            }
        )
    return {
        "models": rows,
        "suggested": list(DEFAULT_MODELS),
        "max_bytes": max_model_bytes(),
        "folders": local_paths_allowed(),
    }
