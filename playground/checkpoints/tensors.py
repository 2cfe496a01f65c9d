"""Files of tensors in the safetensors format, checked before anything is allocated."""

from collections.abc import Mapping, Set
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from playground.common.messages import could_not_read, file_label
from playground.models.config_fields import short_repr

from .manifest import CheckpointError

# types and shapes of tensors by name; without a shape, any is accepted
Expected = dict[str, tuple[torch.dtype, tuple[int, ...] | None]]
MAX_HEADER_BYTES = 1_000_000  # the library allows 100 MB; a model here needs about 20,000
DTYPES = {"F32": torch.float32, "I64": torch.int64, "U8": torch.uint8}
READ_ERRORS = (
    *(safetensors.SafetensorError, OSError, RuntimeError),
    *(TypeError, ValueError, OverflowError),
)


def load_checked_tensors(
    path: Path, expected: Expected, optional: Set[str] = frozenset()
) -> dict[str, Tensor]:
    """Load a safetensors file that contains exactly the expected tensors.

    Names, types, shapes (None: any) must match, and all numbers must be finite. Tensors that are
    `optional` may be absent. Raises CheckpointError for the first mismatch.
    """
    validate_header(path, expected, optional)
    try:
        # Copies: what is loaded is a map of the file, which Windows would not replace or remove.
        tensors = {name: each.clone() for name, each in safetensors.torch.load_file(path).items()}
    except READ_ERRORS as error:
        raise _incomplete(path, error) from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{file_label(path)}: tensor {name!r} holds NaN or infinity; use another checkpoint"
            )
    return tensors


def validate_header(path: Path, expected: Expected, optional: Set[str] = frozenset()) -> None:
    """Check the header of a safetensors file; nothing is allocated. Raises CheckpointError."""
    stored = _read_header(path)
    if not set(expected) - optional <= set(stored) <= set(expected):
        odd = sorted((set(stored) ^ set(expected)) - optional)[0]
        verb = "lacks" if odd in expected else "holds the unexpected"
        raise CheckpointError(
            f"{file_label(path)} {verb} tensor {odd[:80]!r}; it does not belong to this "
            "configuration"
        )
    for name, (dtype_name, stored_shape) in stored.items():
        dtype, shape = expected[name]
        if DTYPES.get(dtype_name) != dtype or shape not in (None, stored_shape):
            expected_tensor = f"{dtype} {list(shape) if shape is not None else 'of any shape'}"
            raise CheckpointError(
                f"{file_label(path)}: tensor {name!r} is {dtype_name} "
                f"{short_repr(list(stored_shape))}, expected {expected_tensor}"
            )


def _read_header(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return type and shape of each tensor. Afterwards, nothing maps the file.

    A huge header is an error, although the library would accept it.
    """
    try:
        with open(path, "rb") as file:
            n_bytes = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise CheckpointError(could_not_read(path, error)) from None
    if n_bytes > MAX_HEADER_BYTES:
        claim = f"its header claims {n_bytes:,} bytes, and at most {MAX_HEADER_BYTES:,} are read"
        raise _incomplete(path, claim)
    try:
        with safetensors.safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
    except READ_ERRORS as error:
        raise _incomplete(path, error) from None


def _incomplete(path: Path, reason: object) -> CheckpointError:
    return CheckpointError(
        f"{file_label(path)} is not a complete safetensors file ({reason}); use another checkpoint"
    )


def serialize_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors as a safetensors file."""
    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )
