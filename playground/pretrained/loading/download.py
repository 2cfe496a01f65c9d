"""Download a pretrained model from the Hub into the cache, without a token.

The size is checked first. Small files are fetched first and the weights last, so that a model
with weights in the cache is complete.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from playground.common.format import format_bytes
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter

from .cache import describe_cache, ensure_disk_space
from .model_files import INDEX_FILE, SHARD_PATTERN, WEIGHTS_FILE, ensure_size_allowed

log = logging.getLogger(__name__)
SMALL_FILES = (".json", ".txt", ".model", ".spm")
SILENCE_TIMEOUT_S = 40.0  # seconds without a byte after which a download fails
CHUNK_BYTES = 1 << 18  # bytes between two progress reports of a download


def connect_to_hub() -> Any:
    """Return a client of the Hub that sends no token, after a connection check.

    Raises:
        UserError: within 3 s without a network, with the models on this machine.
    """
    from huggingface_hub import constants

    from playground.hub.client import Hub
    from playground.hub.errors import HubError
    from playground.hub.transport import configure_process

    configure_process()
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    try:
        hub = Hub("", os.environ.get("HF_ENDPOINT", ""))
        hub.connect()
        return hub
    except HubError as error:
        raise UserError(f"{error}{describe_cache()}", retryable=True, code=error.code) from None


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


def files_to_download(info: dict[str, Any], name: str) -> dict[str, int]:
    """Return the files of a model to download with their sizes, the weights last.

    Raises:
        UserError: if there are no safetensors weights, or the files are too large.
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
    return small | weights


class Download:
    """A download of a model: a thread fetches its files, and another thread waits for it.

    An aborted thread is abandoned, because a silent connection may hold it until its time-out.
    """

    def __init__(self, name: str, progress: ProgressReporter) -> None:
        self.name, self.progress = name, progress
        self.paths: list[Path] = []
        self.error: Exception | None = None
        self._received_bytes = self._total_bytes = 0.0
        self._received_at = time.monotonic()
        self._aborted = threading.Event()

    def run(self) -> Path:
        """Fetch all files and return their folder."""
        thread = threading.Thread(target=self._fetch, name=f"fetch {self.name}", daemon=True)
        thread.start()
        try:
            self._wait(thread)
        finally:
            self._aborted.set()
        self.progress.raise_if_cancelled()
        if self.error is not None:
            raise _download_error(self.name, self.error) from None
        if len({path.parent for path in self.paths}) != 1:
            raise UserError(
                f"{self.name} changed on the Hub during the download; try again", retryable=True
            )
        return self.paths[0].parent

    def _wait(self, thread: threading.Thread) -> None:
        """Report the progress until the thread ends, the job is cancelled or no data arrives."""
        while thread.is_alive():
            thread.join(0.1)
            if total := self._total_bytes:
                self.progress.progress(min(self._received_bytes, total), total, "bytes")
            self.progress.raise_if_cancelled()
            if time.monotonic() - self._received_at > SILENCE_TIMEOUT_S:
                raise UserError(
                    f"{self.name}: the Hub sent no data for {SILENCE_TIMEOUT_S:.0f} s; check the "
                    "network and try again",
                    retryable=True,
                )

    def _fetch(self) -> None:
        try:
            hub = connect_to_hub()
            files = files_to_download(fetch_model_info(hub, self.name), self.name)
            total = sum(files.values())
            ensure_disk_space(self.name, total)
            self.progress.message(
                f"Downloading {self.name}: {format_bytes(total)} in {len(files)} files, to this "
                "machine's cache"
            )
            self._total_bytes = total
            for path in files:
                self.progress.raise_if_cancelled()
                with hub.translating_errors(f"fetch {path} of", self.name):
                    bar = partial(ByteCounter, self._count_bytes)
                    local_path = hub.api.hf_hub_download(self.name, path, tqdm_class=bar)
                self.paths.append(Path(local_path))
                self._received_at = time.monotonic()
        except Exception as error:
            self.error = error

    def _count_bytes(self, n: float) -> None:
        self._received_bytes += n
        self._received_at = time.monotonic()
        if self._aborted.is_set():
            raise JobCancelled


class ByteCounter:
    """A progress bar for huggingface_hub that calls `on_bytes` with each number of bytes."""

    def __init__(self, on_bytes: Callable[[float], None], *_: Any, **__: Any) -> None:
        self.update = on_bytes

    def __enter__(self) -> ByteCounter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


def download(name: str, progress: ProgressReporter) -> Path:
    """Download a model into the Hub's cache and return its folder there."""
    progress.message(f"Connecting to the Hub for {name}")
    return Download(name, progress).run()


def _download_error(name: str, error: Exception) -> Exception:
    from playground.hub.errors import HubError

    if isinstance(error, HubError):
        return UserError(name_model(name, error), retryable=error.retryable, code=error.code)
    if isinstance(error, UserError | JobCancelled):
        return error
    log.error("The download of %r failed", name, exc_info=error)
    return UserError(name_model(name, error), retryable=True)
