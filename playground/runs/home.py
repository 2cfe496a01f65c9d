"""Where checkpoints and runs are kept on this machine, and whether that outlives a restart. No torch in here.

On a Space, what lies beside the code is gone when the Space sleeps or is rebuilt; what lies on its persistent storage, mounted
at /data, stays.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from playground import ASSETS_DIR, CHECKPOINTS_DIR, IS_INSTALLED
from playground.training.files import write_folder

BESIDE = CHECKPOINTS_DIR
SHIPPED = ("copy", "reverse", "reverse-one-head")  # the checkpoints that come with the playground
STORAGE = Path("/data")
WANING = (
    "This Space has no persistent storage: runs and checkpoints are gone when it sleeps or restarts. "
    "Keep what you like in time: Download under “Checkpoints of this run”, or publish it in the Hub tab."
)


@dataclass(frozen=True)
class Home:
    """The folder of checkpoints and runs; `note` is what its visitors should know of it, empty where there is nothing to fear."""

    root: Path
    note: str = ""


def find_home(storage: Path = STORAGE, mounted: Callable[[Path], bool] = os.path.ismount) -> Home:
    """PLAYGROUND_CHECKPOINTS; else a Space's storage where it has one that can be written; else the folder beside the code, or that of
    the working directory for an installed package.

    Where a Space has storage, HF_HOME is set to it too, unless it is set: processes that start from here on keep there what they fetch.
    """
    on_space = "SPACE_ID" in os.environ
    stays = on_space and mounted(storage) and os.access(storage, os.W_OK | os.X_OK)
    if stays:
        os.environ.setdefault("HF_HOME", str(storage / ".huggingface"))
    if chosen := os.environ.get("PLAYGROUND_CHECKPOINTS"):
        within = stays and Path(chosen).resolve().is_relative_to(storage.resolve())
        return Home(Path(chosen), WANING if on_space and not within else "")
    if not stays:
        if IS_INSTALLED:
            _bring_shipped(BESIDE)
        return Home(BESIDE, WANING if on_space else "")
    root = storage / "checkpoints"
    os.environ["PLAYGROUND_CHECKPOINTS"] = str(
        root
    )  # rows and models that are fetched go by it too, in every process
    _bring_shipped(root)
    return Home(root)


def _bring_shipped(root: Path) -> None:
    """Copy the checkpoints that come with the playground to where it looks for them, those that are not there yet."""
    for name in SHIPPED:
        shipped = ASSETS_DIR / "checkpoints" / name
        if not (root / name).exists() and shipped.is_dir():
            with suppress(OSError):  # a full storage is no reason not to start
                write_folder(
                    root / name, {path.name: path.read_bytes() for path in shipped.iterdir()}
                )
