"""Download a pretrained model from the Hub into the cache, without a token.

The size is checked first. Small files are fetched first and the weights last, so that a model
with weights in the cache is complete.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from playground.jobs.progress import JobCancelled, JobError, ProgressReporter

from .cache import (
    describe_cache,
    ensure_disk_space,
)
from .model_files import (
    INDEX_FILE,
    SHARD_PATTERN,
    WEIGHTS_FILE,
    ensure_size_allowed,
    format_mb,
)

log = logging.getLogger(__name__)
SMALL_FILES = (".json", ".txt", ".model")
SILENCE_TIMEOUT_S = 40.0  # seconds without a byte after which a download fails
CHUNK_BYTES = 1 << 18  # bytes between two progress reports of a download


def connect_to_hub() -> Any:
    """Return a client of the Hub that sends no token, after a connection check.

    Raises:
        JobError: within 3 s without a network, with the models on this machine.
    """
    from huggingface_hub import constants

    from playground.hub.client import Hub
    from playground.hub.errors import HubError
    from playground.hub.transport import configure_process

    configure_process()
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    try:
        if constants.HF_HUB_OFFLINE:
            raise HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and restart the playground",
                retryable=True,
            )
        hub = Hub("", os.environ.get("HF_ENDPOINT", ""))
        hub.connect()
        return hub
    except HubError as error:
        raise JobError(f"{error}{describe_cache()}", retryable=True) from None


def fetch_model_info(hub: Any, name: str) -> dict[str, Any]:
    """Return a model's metadata: its commit, its files with their sizes, whether it is gated."""
    from playground.hub.errors import HubError

    try:
        info: dict[str, Any] = hub.raw_repo_info(name)
    except HubError as error:
        raise JobError(
            _download_error(name, error) + (describe_cache() if error.retryable else ""),
            retryable=error.retryable,
        ) from None
    if info.get("gated"):
        raise JobError(
            f"{name} is gated: its owners must grant access, and this playground sends no token; "
            "choose another model, or download it with `hf download` and give its folder"
        )
    return info


def _download_error(name: str, error: Exception) -> str:
    return str(error) if name in str(error) else f"{name}: {error}"


def files_to_download(info: dict[str, Any], name: str) -> dict[str, int]:
    """Return the files of a model to download with their sizes, the weights last.

    Raises:
        JobError: if there are no safetensors weights, or the files are too large.
    """
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
        raise JobError(f"{name} has no {problem}, which is required; choose another model")
    if WEIGHTS_FILE not in sizes:
        if INDEX_FILE not in sizes:
            raise JobError(
                f"{name} has weights in several files but no {INDEX_FILE}; choose another model"
            )
        small[INDEX_FILE] = sizes[INDEX_FILE]
    ensure_size_allowed(name, sum(weights.values()))
    if sum(small.values()) > 100_000_000:
        raise JobError(
            f"{name} has {format_mb(sum(small.values()))} of files besides its weights, more than "
            "the maximum; choose another model"
        )
    return small | weights


def download(name: str, progress: ProgressReporter) -> Path:
    """Download a model into the Hub's cache and return its folder there."""
    progress.message(f"Connecting to the Hub for {name}")
    fetched: list[Path] = []
    counter = {"bytes": 0.0, "total": 0.0, "at": time.monotonic()}
    problem: list[Exception] = []
    cancelled = threading.Event()

    class Counter:
        """A progress bar for huggingface_hub that counts bytes, and aborts a cancelled download."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: float = 1) -> None:
            counter["bytes"] += n
            counter["at"] = time.monotonic()
            if cancelled.is_set():
                raise JobCancelled

        def close(self) -> None:
            pass

    def fetch() -> None:
        try:
            hub = connect_to_hub()
            files = files_to_download(fetch_model_info(hub, name), name)
            total = sum(files.values())
            ensure_disk_space(name, total)
            progress.message(
                f"Downloading {name}: {format_mb(total)} in {len(files)} files, to this machine's "
                "cache"
            )
            counter["total"] = total
            for path in files:
                progress.raise_if_cancelled()
                with hub.translating_errors(f"fetch {path} of", name):
                    fetched.append(Path(hub.api.hf_hub_download(name, path, tqdm_class=Counter)))
                counter["at"] = time.monotonic()
        except Exception as error:
            problem.append(error)

    # a hanging thread is abandoned, because its client times out soon
    thread = threading.Thread(target=fetch, name=f"fetch {name}", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            if counter["total"]:
                progress.progress(
                    min(counter["bytes"], counter["total"]), counter["total"], "bytes"
                )
            progress.raise_if_cancelled()
            if time.monotonic() - counter["at"] > SILENCE_TIMEOUT_S:
                raise JobError(
                    f"{name}: the Hub sent no data for {SILENCE_TIMEOUT_S:.0f} s; check the "
                    "network and try again",
                    retryable=True,
                )
    finally:
        cancelled.set()
    progress.raise_if_cancelled()
    if problem:
        if isinstance(problem[0], JobError | JobCancelled):
            raise problem[0]
        if type(problem[0]).__name__ not in ("HubError", "NotFoundError"):
            log.error("The download of %r failed", name, exc_info=problem[0])
        raise JobError(
            _download_error(name, problem[0]), retryable=getattr(problem[0], "retryable", True)
        ) from None
    if len({path.parent for path in fetched}) != 1:
        raise JobError(f"{name} changed on the Hub during the download; try again", retryable=True)
    return fetched[0].parent
