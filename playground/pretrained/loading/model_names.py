"""Names of pretrained models: on the Hub, in a local folder, or fine-tuned here."""

import os
from pathlib import Path

from playground.common.env import env_text
from playground.common.storage import checkpoints_root
from playground.errors import UserError
from playground.hub.repo_ids import NAME_PATTERN, is_repo

FINETUNED_PREFIX = "tuned:"  # prefix of the models that were fine-tuned here
# in a folder written by fine-tuning: {"from": name, "task": name, "steps": n}
METADATA_FILE = "fine-tuned.json"
CANONICAL_NAMES = {
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "gpt2": "openai-community/gpt2",
}


def local_paths_allowed() -> bool:
    """Return whether local folders may be used as models, which a shared instance forbids."""
    return env_text("LOCAL_MODELS") == "1" and "SPACE_ID" not in os.environ


def finetuned_dir() -> Path:
    """Return the folder of the models that were fine-tuned here."""
    return checkpoints_root() / "compared"


def local_folder(name: str) -> Path | None:
    """Return the folder of a model that was fine-tuned here, or any other if allowed; else None."""
    if name.startswith(FINETUNED_PREFIX) and NAME_PATTERN.fullmatch(
        own := name.removeprefix(FINETUNED_PREFIX)
    ):
        return folder if (folder := finetuned_dir() / own).is_dir() else None
    path = os.path.expanduser(name)
    return Path(path) if local_paths_allowed() and name and os.path.isdir(path) else None


def is_hub_model(name: str) -> bool:
    """Return whether a model of the Hub can have this name; the oldest have no owner."""
    return is_repo(name if "/" in name else f"owner/{name}")


def validate_name(name: object) -> str:
    """Return the stripped name of a model on the Hub or of a folder, or raise UserError."""
    text = name.strip() if isinstance(name, str) else ""
    if local_folder(text):
        return text
    if text.startswith(FINETUNED_PREFIX):
        raise UserError(f"{text[:120]!r} is not on this machine; fine-tune the model again")
    if not is_hub_model(text):
        folder = ", or a folder that contains one" if local_paths_allowed() else ""
        raise UserError(
            f"{str(name)[:120]!r} is not the name of a model; give one of the Hub, such as gpt2 "
            f"or user/name{folder}"
        )
    return text
