"""The static Space of a published model: its interactive page, and a card for the Hub."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceCardData

from playground.common.env import TAG

from .errors import HubError
from .existing_card import (
    OWN_FIELD,
    card_fields,
    card_license,
    read_existing_card,
    signed_card,
)
from .repo_ids import PAGE


def write_space(package: Path, folder: Path, repo: str, model_url: str, existing: bytes) -> None:
    """Write the files of the Space of a package into a new folder.

    `existing` is the card of the Space, which stays if its owner wrote or edited it.
    """
    folder.mkdir()
    shutil.copyfile(package / PAGE, folder / PAGE)
    if _stays(existing):
        (folder / "README.md").write_bytes(existing)
        return
    license = card_license((package / "README.md").read_text("utf-8", "replace"))
    (folder / "README.md").write_bytes(_card(repo, model_url, license).encode())


def owner_card_notes(repo: str, existing: bytes) -> list[str]:
    """Return a note if the card of a Space stays.

    Raises HubError if that card is not of a static Space: no other one shows the page.
    """
    if not _stays(existing):
        return []
    if card_fields(existing.decode("utf-8-sig", "replace")).get("sdk") != "static":
        raise HubError(
            f"README.md of the Space {repo} does not have the line “sdk: static”, so the Space "
            "would not show the page; add that line between the two lines “---” at its top, or "
            "publish without the interactive page"
        )
    return [
        "README.md of the Space was written or edited by hand and stays; delete it on the Hub to "
        "get a new one"
    ]


def _stays(existing: bytes) -> bool:
    card = read_existing_card(existing)
    return card.is_handwritten or bool(card.license)


def _card(repo: str, model_url: str, license: Mapping[str, Any]) -> str:
    own: dict[str, Any] = {OWN_FIELD: {"license": license.get("license")}}
    data = SpaceCardData(
        title=repo.split("/")[1],
        emoji="🔀",
        colorFrom="blue",
        colorTo="green",
        sdk="static",
        app_file=PAGE,
        **license,
        models=[repo],
        tags=[TAG],
        short_description="Switch off parts of a transformer",
        **own,
    )
    return signed_card(data, f"The model [{repo}]({model_url}) runs in this page.\n")
