"""Names on the Hub: repositories, branches, files, tags and licenses.

The module has only light imports, because the page's process imports it.
"""

import re
from enum import Enum

MANIFEST = "playground.json"
PAGE = "index.html"  # the interactive page, or a page of the owner, which stays
REPO_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
BRANCH_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,95}")
REVISION_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]{0,199}")
# Files of earlier pushes, which a push may delete. Other files in a repository belong to its owner.
PACKAGE_FILES = {
    "README.md",
    PAGE,
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
    "attention.py",
    "base_config.py",
    "automodel.py",
    "automodel_base.py",
    "automodel_cache.py",
    "automodel_decoder_only.py",
    "automodel_encoder_only.py",
    "automodel_generation.py",
    "automodel_prebuilt.py",
    "automodel_recurrent.py",
    "automodel_single_stack.py",
    "automodel_torch_transformer.py",
    "config.py",
    "config_fields.py",
    "decoder_only.py",
    "embeddings.py",
    "encoder_only.py",
    "feed_forward.py",
    "initialization.py",
    "kv_cache.py",
    "layers.py",
    "parameter_count.py",
    "position_encoding.py",
    "recurrent.py",
    "rnn_cells.py",
    "rnn_seq2seq.py",
    "single_stack.py",
    "stack_config.py",
    "torch_transformer.py",
    "transformer.py",
    "variant_configs.py",
}
# The accepted licenses: the Hub rejects a card with any other id, and "other" needs its own text.
LICENSES = (
    "mit",
    "apache-2.0",
    "bsd-2-clause",
    "bsd-3-clause",
    "bsd-3-clause-clear",
    "bsl-1.0",
    "isc",
    "zlib",
    "unlicense",
    "wtfpl",
    "ncsa",
    "0bsd",
    "artistic-2.0",
    "ecl-2.0",
    "ms-pl",
    "osl-3.0",
    "postgresql",
    "epl-1.0",
    "epl-2.0",
    "mpl-2.0",
    "eupl-1.1",
    "eupl-1.2",
    "gpl",
    "gpl-2.0",
    "gpl-3.0",
    "lgpl",
    "lgpl-2.1",
    "lgpl-3.0",
    "lgpl-lr",
    "agpl-3.0",
    "gfdl",
    "afl-3.0",
    "cc",
    "cc0-1.0",
    "cc-by-2.0",
    "cc-by-2.5",
    "cc-by-3.0",
    "cc-by-4.0",
    "cc-by-sa-3.0",
    "cc-by-sa-4.0",
    "cc-by-nc-2.0",
    "cc-by-nc-3.0",
    "cc-by-nc-4.0",
    "cc-by-nd-4.0",
    "cc-by-nc-nd-3.0",
    "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-2.0",
    "cc-by-nc-sa-3.0",
    "cc-by-nc-sa-4.0",
    "cdla-sharing-1.0",
    "cdla-permissive-1.0",
    "cdla-permissive-2.0",
    "c-uda",
    "odbl",
    "odc-by",
    "pddl",
    "etalab-2.0",
    "ofl-1.1",
    "openrail",
    "bigscience-openrail-m",
    "creativeml-openrail-m",
)


class Phase(Enum):
    """The phase of a job, which decides what may exist on the Hub if the job ends early."""

    READING = "reading"  # nothing is written yet
    WRITING = "writing"  # a repository, a branch or uploaded files may exist, but no commit
    COMMITTING = "committing"  # the commit may exist


def is_repo(name: str) -> bool:
    """Return whether this can be the name of a repository, user/name."""
    return (
        bool(REPO_PATTERN.fullmatch(name))
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )


def is_branch(name: str) -> bool:
    """Return whether this can be the name of a new branch."""
    return (
        bool(BRANCH_PATTERN.fullmatch(name))
        and is_revision(name)
        and not name.endswith((".", ".lock"))
        and not name.startswith("refs/")
    )


def is_revision(name: str) -> bool:
    """Return whether this can be a branch, a tag or a commit.

    A revision becomes part of a URL, where dots and slashes could lead to another path.
    """
    hidden_or_empty = any(not part or part.startswith(".") for part in name.split("/"))
    return bool(REVISION_PATTERN.fullmatch(name)) and ".." not in name and not hidden_or_empty
