"""What things are called on the Hub. Imports nothing heavy: the page's process uses it too."""

from __future__ import annotations

import re

TAG = "transformer-playground"
MANIFEST = "playground.json"
REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199}")
# The files that a push may take away again, because an earlier one put them there. What else is in a repository is its owner's.
OURS = {
    "README.md", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", MANIFEST,
    "evaluation.json", "model.safetensors", "training.safetensors", "metrics.jsonl", "training.png", "cross-attention.png",
    "attention.py", "automodel.py", "config.py", "layers.py", "positions.py", "transformer.py",
}  # fmt: skip


def is_repo(name: str) -> bool:
    """Whether this can be the name of a repository, user/name."""
    return bool(REPO.fullmatch(name)) and "--" not in name and ".." not in name and not name.endswith(".git")


def is_revision(name: str) -> bool:
    """Whether this can be a branch, a tag or a commit. It becomes part of an address, where dots and slashes lead elsewhere."""
    hidden_or_empty = any(not part or part.startswith(".") for part in name.split("/"))
    return bool(REVISION.fullmatch(name)) and ".." not in name and not hidden_or_empty
