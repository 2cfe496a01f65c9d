"""Download a pretrained model from the Hub into the cache, without a token.

The size is checked first. Small files are fetched first, and checked before the weights, which
come last: a model with weights in the cache is complete.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

from playground.common.format import format_bytes
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter

from .cache import describe_cache, ensure_disk_space
from .model_files import INDEX_FILE, SHARD_PATTERN, WEIGHTS_FILE, Check, ensure_size_allowed

log = logging.getLogger(__name__)
SMALL_FILES = (".json", ".jinja", ".txt", ".model", ".spm")
SILENCE_TIMEOUT_S = 40.0  # seconds without a byte after which a download fails
CHUNK_BYTES = 1 << 18  # bytes between two progress reports of a download


def open_hub() -> Any:
    """Return a client of the Hub that sends no token."""
    from huggingface_hub import constants

    from playground.hub.client import Hub
    from playground.hub.transport import configure_process

    configure_process()
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    return Hub("", os.environ.get("HF_ENDPOINT", ""))


def fetch_model_info(hub: Any, name: str) -> dict[str, Any]:
    """Return a model's metadata: its commit, its files with their sizes, whether it is gated."""
    from playground.hub.errors import HUB_UNAVAILABLE, HubError

    try:
        info: dict[str, Any] = hub.raw_repo_info(name)
    except HubError as error:
        raise UserError(
            name_model(name, error) + (describe_cache() if error.retryable else ""),
            retryable=error.retryable,
            code=error.code or (HUB_UNAVAILABLE if error.retryable else ""),
        ) from None
    if info.get("gated"):
        raise UserError(
            f"{name} is gated: its owners must grant access, and this playground sends no token; "
            "choose another model, or download it with `hf download` and give its folder"
        )
    return info


def name_model(name: str, error: Exception) -> str:
    """Return the message of an error, which names the model."""
    return str(error) if name in str(error) else f"{name}: {error}"


def files_to_download(info: dict[str, Any], name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the files of a model to download with their sizes: the small ones, and the weights."""
    sizes = {
        str(each["rfilename"]): int(each.get("size") or 0)
        for each in info.get("siblings") or []
        if isinstance(each, dict) and isinstance(each.get("rfilename"), str)
    }
    small = {
        path: size
        for path, size in sizes.items()
        if "/" not in path and path.endswith(SMALL_FILES) and path != INDEX_FILE
    }
    weights = (
        {WEIGHTS_FILE: sizes[WEIGHTS_FILE]}
        if WEIGHTS_FILE in sizes
        else {path: size for path, size in sizes.items() if SHARD_PATTERN.fullmatch(path)}
    )
    if not weights or "config.json" not in small:
        problem = "config.json" if weights else "weights in the safetensors format"
        raise UserError(f"{name} has no {problem}, which is required; choose another model")
    if WEIGHTS_FILE not in sizes:
        if INDEX_FILE not in sizes:
            raise UserError(
                f"{name} has weights in several files but no {INDEX_FILE}; choose another model"
            )
        small[INDEX_FILE] = sizes[INDEX_FILE]
    ensure_size_allowed(name, sum(weights.values()))
    if sum(small.values()) > 100_000_000:
        raise UserError(
            f"{name} has {format_bytes(sum(small.values()))} of files besides its weights, more "
            "than the maximum; choose another model"
        )
    return small, weights


class ByteMeter:
    """Counts the received bytes of a download: its progress bar for huggingface_hub."""

    def __init__(self) -> None:
        self.received = self.total = 0.0
        self.received_at = time.monotonic()
        self.is_aborted = False

    def __call__(self, *_: object, **__: object) -> ByteMeter:
        return self

    def __enter__(self) -> ByteMeter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, n: float) -> None:
        self.received += n
        self.received_at = time.monotonic()
        if self.is_aborted:
            raise JobCancelled


def download(name: str, progress: ProgressReporter, check: Check) -> Path:
    """Download a model into the Hub's cache and return its folder there.

    `check` gets the small files; if it raises an error, no weights are requested. A thread fetches
    the files. An aborted one is abandoned, because a silent connection may hold it until its
    timeout.
    """
    progress.message(f"Connecting to the Hub for {name}")
    meter, folder = ByteMeter(), Future[Path]()

    def fetch() -> None:
        try:
            folder.set_result(_fetch(name, progress, meter, check))
        except Exception as error:
            folder.set_exception(_download_error(name, error))

    threading.Thread(target=fetch, name=f"fetch {name}", daemon=True).start()
    try:
        is_done = False
        while not is_done:
            is_done = bool(wait([folder], 0.1).done)
            if total := meter.total:
                progress.progress(min(meter.received, total), total, "bytes")
            progress.raise_if_cancelled()
            if time.monotonic() - meter.received_at > SILENCE_TIMEOUT_S:
                raise UserError(
                    f"{name}: the Hub sent no data for {SILENCE_TIMEOUT_S:.0f} s; check the "
                    "network and try again",
                    retryable=True,
                )
    finally:
        meter.is_aborted = True
    progress.raise_if_cancelled()
    return folder.result()


def _fetch(name: str, progress: ProgressReporter, meter: ByteMeter, check: Check) -> Path:
    hub = open_hub()
    small, weights = files_to_download(fetch_model_info(hub, name), name)
    files = small | weights
    total = sum(files.values())
    ensure_disk_space(name, total)
    progress.message(
        f"Downloading {name}: {format_bytes(total)} in {len(files)} files, to this machine's cache"
    )
    meter.total = total
    folders = set[Path]()
    for path in files:
        progress.raise_if_cancelled()
        if path == next(iter(weights)):
            check(name, next(iter(folders)))
        with hub.translating_errors(f"fetch {path} of", name):
            folders.add(Path(hub.api.hf_hub_download(name, path, tqdm_class=meter)).parent)
        meter.received_at = time.monotonic()
    if len(folders) > 1:
        raise UserError(f"{name} changed on the Hub during the download; try again", retryable=True)
    return folders.pop()


def _download_error(name: str, error: Exception) -> Exception:
    from playground.hub.errors import HubError

    if isinstance(error, HubError):
        return UserError(name_model(name, error), retryable=error.retryable, code=error.code)
    if isinstance(error, UserError | JobCancelled):
        return error
    log.error("The download of %r failed", name, exc_info=error)
    return UserError(name_model(name, error), retryable=True)
