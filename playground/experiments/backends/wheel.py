"""Build the package of this checkout for machines that have no checkout."""

import subprocess
import sys
from pathlib import Path

from playground import ASSETS_DIR, IS_INSTALLED
from playground.errors import UserError


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout in an empty folder, and return its path."""
    if IS_INSTALLED:
        raise UserError(
            "HF Jobs train the code of a checkout, and this package is installed without one; "
            "clone the repository, and start the command in its folder"
        )
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *words, str(ASSETS_DIR)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UserError(f"pip could not build the wheel of this checkout: {reason}")
    return next(folder.glob("*.whl"))
