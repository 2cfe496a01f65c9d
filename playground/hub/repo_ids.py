"""Names on the Hub: repositories, revisions, files and licenses, and tokens; their checks.

The module has only light imports, because the page's process imports it.
"""

import re
from enum import Enum
from pathlib import Path

from playground import models
from playground.common.env import secret
from playground.errors import UserError

MANIFEST = "playground.json"
INVALID_TOKEN = "this token is not valid: copy it again, it begins with hf_"
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")  # of a user, or of a model alone
REVISION_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199}")
# Files of earlier pushes, which a push may delete. Other files in a repository belong to its owner.
PACKAGE_FILES = {
    "README.md",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    MANIFEST,
    "evaluation.json",
    "model.safetensors",
    "training.safetensors",
    "metrics.jsonl",
    "training.png",
    "cross-attention.png",
    *(path.name for path in Path(models.__file__).parent.glob("[!_]*.py")),
}
# The accepted licenses: the Hub rejects a card with any other id, and "other" needs its own text.
LICENSES = tuple(Path(__file__).with_name("licenses.txt").read_text("utf-8").split())


class Phase(Enum):
    """What may exist on the Hub if a job ends early; without a phase, nothing."""

    WRITING = "writing"  # a repository or uploaded files may exist, but no commit
    COMMITTING = "committing"  # the commit may exist


def is_repo(name: str) -> bool:
    """Return whether this can be the name of a repository, user/name."""
    user, slash, own = name.partition("/")
    return (
        bool(slash and NAME_PATTERN.fullmatch(user) and NAME_PATTERN.fullmatch(own))
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )


def is_revision(name: str) -> bool:
    """Return whether this can be a branch, a tag or a commit.

    A revision becomes part of a URL, where dots and slashes could lead to another path.
    """
    hidden_or_empty = any(not part or part.startswith(".") for part in name.split("/"))
    return bool(REVISION_PATTERN.fullmatch(name)) and ".." not in name and not hidden_or_empty


def check_repo(name: str) -> None:
    """Raise UserError unless this can be the name of a repository."""
    if not is_repo(name):
        raise UserError(
            f"{name[:120]!r} is not the name of a repository; write user/name, with letters, "
            "digits, dots, dashes and underscores"
        )


def check_revision(name: str) -> None:
    """Raise UserError unless this can be a branch, a tag or a commit."""
    if not is_revision(name):
        raise UserError(
            f"{name[:60]!r} is not a valid revision; name a branch, a tag or a commit of the "
            "repository"
        )


def is_token(text: str) -> bool:
    """Return whether this can be a token, and so be a part of a request's header."""
    return bool(re.fullmatch(r"[\x21-\x7e]{1,4000}", text))


def machine_token() -> str:
    """Return the token of this machine, of HF_TOKEN or `hf auth login`; empty without one."""
    from huggingface_hub import get_token

    return secret("HF_TOKEN").strip() or get_token() or ""


def check_license(name: str) -> str:
    """Return the id of a license; "" for none. Raises UserError for one unknown to the Hub."""
    license_id = name.strip().lower()
    if license_id and license_id not in LICENSES:
        raise UserError(
            f"the license {license_id[:60]!r} is not known to the Hub; "
            "enter one such as mit, apache-2.0 or cc-by-4.0"
        )
    return license_id
