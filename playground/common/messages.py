"""Messages that several modules share."""

from collections.abc import Iterable
from pathlib import Path

HUB_OFFLINE = (
    "this machine is set to work without the Hub, by HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE or "
    "HF_DATASETS_OFFLINE: unset the variable and start the playground again"
)
HIDDEN_TARGET = "targets of this private dataset are hidden"
NO_TOKENS = "the text has no tokens for this model; type some words"
SIGN_IN_FIRST = "sign in first: publishing needs a token with write access"


def length_note(length: int, low: int, high: int) -> str:
    """Return the note on an input of a length that training lacks, and "" for other lengths."""
    if low <= length <= high:
        return ""
    return f"trained on length {f'{low} to {high}' if low < high else high} only"


def choose_one_of(name: str, value: object, choices: Iterable[str]) -> str:
    return f"{name} is {value}; choose one of {', '.join(choices)}"


def unknown_setting(name: object, settings: Iterable[str]) -> str:
    return f"{name} is not a setting of a run; the settings are architecture, {', '.join(settings)}"


def unknown_job(kind: object, kinds: Iterable[str]) -> str:
    return f"{str(kind)[:40]!r} is not a kind of job; choose one of {', '.join(kinds)}"


def missing_dataset(sha256: object) -> str:
    """Return the message for a dataset that is not stored, and for one of another user."""
    return (
        f"this dataset ({str(sha256)[:12]}…) is not on this server, or not yours; upload it under "
        "Your own data in the Train tab"
    )


def missing_mask_token(model: str) -> str:
    return (
        f"{model} has no mask token, so it cannot predict masked positions; choose a masked "
        "language model"
    )


def file_label(path: Path) -> str:
    """Return the name of a file or folder with that of its parent, as messages name it."""
    return "/".join(path.parts[-2:])


def could_not_read(path: Path, error: OSError) -> str:
    return f"could not read {file_label(path)}: {error.strerror or error}"


def too_many_bytes(name: object, size: int, limit: int) -> str:
    return f"{name} has {size:,} bytes; at most {limit:,} are read"


def output_folder_not_empty(folder: object) -> str:
    return f"--out {folder} contains other files; choose a new or empty folder"


def output_folder_not_writable(folder: object, error: OSError) -> str:
    return f"--out {folder} cannot be written: {error.strerror}; choose another folder"


def scores_summary(exact_match: float, token_accuracy: float, n: int) -> str:
    return (
        f"exact match {exact_match:.2%}, tokens {token_accuracy:.2%}, of {n:,} held-out sequences"
    )


def generation_progress(max_tokens: int) -> str:
    return f"Generating up to {max_tokens} tokens"


def sequence_accepts(max_length: int) -> str:
    """Return what a field with a typed sequence accepts."""
    return f"a sequence of at most {max_length:,} characters"
