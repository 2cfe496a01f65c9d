"""What kind of machine this is, as far as it decides where runs train. No torch in here."""

from __future__ import annotations

import os

ZERO = "zero"  # the device setting of a run that trains in slices of ZeroGPU


def on_zero() -> bool:
    """Whether this is a Space on ZeroGPU: no GPU of its own, but one that is lent for seconds at a time to what a visitor's event calls."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
