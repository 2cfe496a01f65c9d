"""The interactive page of a published model, as a static Space with the name of its repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import RepositoryNotFoundError

from playground.common.env import TAG

from .errors import HubError
from .existing_card import card_license
from .repo_ids import PAGE

if TYPE_CHECKING:
    from .client import Hub

REPLACED_FILES = {".gitattributes", "README.md"}  # of a new Space


def ensure_own_space(hub: Hub, repo: str, *, private: bool) -> None:
    """Check that a Space of this name may get the page of a model, if there is one.

    Raises:
        HubError: if it has content that is not such a page, or is public and the model private.
    """
    with hub.translating_errors("read the Space", repo):
        try:
            info = hub.api.space_info(repo)
        except RepositoryNotFoundError:
            return
        others = {file.rfilename for file in info.siblings or []} - REPLACED_FILES
    if others - {PAGE} or (others and TAG not in (info.tags or [])):
        raise HubError(
            f"the Space {repo} has other content ({', '.join(sorted(others)[:3])}), which stays "
            "unchanged; choose another name, or publish without the interactive page"
        )
    if private and not info.private:
        raise HubError(
            f"the Space {repo} is public and the model private, so its page would show the model "
            "to all; make the Space private, or publish without the interactive page"
        )


def push_space(hub: Hub, package: Path, repo: str, *, private: bool) -> str:
    """Write the page of a package to its Space, in one commit; return the Space's address.

    Raises:
        HubError: if the Space cannot be created or written; the model is published by then.
    """
    license = card_license((package / "README.md").read_text("utf-8", "replace"))
    card = space_card(repo, f"{hub.endpoint}/{repo}", license).encode()
    with hub.translating_errors("write the Space of the published model", repo):
        hub.api.create_repo(
            repo, repo_type="space", space_sdk="static", private=private, exist_ok=True
        )
        hub.api.create_commit(
            repo,
            [CommitOperationAdd(PAGE, package / PAGE), CommitOperationAdd("README.md", card)],
            commit_message="Interactive page",
            repo_type="space",
        )
    return f"{hub.endpoint}/spaces/{repo}"


def space_card(repo: str, model_url: str, license: Mapping[str, Any]) -> str:
    """Return the README.md of the Space: its settings for the Hub, and a link to the model."""
    settings = {
        "title": repo.split("/")[1],
        "emoji": "🔀",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "static",
        "app_file": PAGE,
        **license,
        "models": [repo],
        "tags": [TAG],
        "short_description": "Switch off parts of a transformer",
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    return "\n".join(
        ["---", *lines, "---", "", f"The model [{repo}]({model_url}) runs in this page.", ""]
    )
