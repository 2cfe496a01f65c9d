"""The static Space of a published model: its interactive page, and a card for the Hub."""

import json
import shutil
from pathlib import Path

from playground.common.env import TAG

from .existing_card import card_license
from .repo_ids import PAGE


def write_space(package: Path, folder: Path, repo: str, model_url: str) -> None:
    """Write the files of the Space of a package into a new folder."""
    folder.mkdir()
    shutil.copyfile(package / PAGE, folder / PAGE)
    settings = {
        "title": repo.split("/")[1],
        "emoji": "🔀",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "static",
        "app_file": PAGE,
        **card_license((package / "README.md").read_text("utf-8", "replace")),
        "models": [repo],
        "tags": [TAG],
        "short_description": "Switch off parts of a transformer",
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    card = ["---", *lines, "---", "", f"The model [{repo}]({model_url}) runs in this page.", ""]
    (folder / "README.md").write_text("\n".join(card), encoding="utf-8")
