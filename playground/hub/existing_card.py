"""The card of a repository: the scores that it reports, and what its owner wrote in it.

A card may come from any repository, and have any content. What its owner wrote stays after a push.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml  # type: ignore[import-untyped]
from huggingface_hub import CardData

from playground.checkpoints.manifest import is_number

LICENSE_FIELDS = ("license", "license_name", "license_link")
OWN_FIELD = "playground"  # of a card that a push has written
MAX_LICENSE_LENGTH = 200
MAX_FRONT_MATTER = 100_000  # characters
FRONT_MATTER_PATTERN = re.compile(r"\s*---\r?\n(.*?)^---\s*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class ExistingCard:
    """The part of a card that its owner wrote.

    license         the metadata of the license, unless a push has chosen it
    is_handwritten  whether the owner has written or changed anything but the license
    """

    license: Mapping[str, Any] = field(default_factory=dict)
    is_handwritten: bool = False

    @property
    def license_text(self) -> str:
        """The license in words; empty without one."""
        name = self.license.get("license_name") or self.license.get("license", "")
        return ", ".join(name) if isinstance(name, list) else str(name)


def read_existing_card(content: bytes) -> ExistingCard:
    """Read a card, which may have any content."""
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    try:
        fields, body = split_card(text)
    except Exception:  # YAML constructors raise arbitrary errors
        return ExistingCard(is_handwritten=True)
    license, own = license_of(fields), fields.get(OWN_FIELD)
    if not isinstance(own, dict):
        is_handwritten = bool(set(fields) - set(LICENSE_FIELDS) or body.strip())
        return ExistingCard(license, is_handwritten)
    if license.get("license") == (own.get("license") or None):
        license = {}
    try:
        is_handwritten = own.get("digest") not in (None, card_digest(text))
    except (TypeError, ValueError):  # a name or a number that no push writes
        is_handwritten = True
    return ExistingCard(license, is_handwritten)


def card_fields(text: str) -> dict[str, Any]:
    """Return the metadata of a card; none if it cannot be read."""
    try:
        return split_card(text)[0]
    except Exception:  # YAML constructors raise arbitrary errors
        return {}


def license_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the license in the metadata of a card."""
    return {name: fields[name] for name in LICENSE_FIELDS if _is_text(fields.get(name))}


def card_digest(text: str) -> str:
    """Return a digest of a card without its license and the digest itself."""
    fields, body = split_card(text)
    own = {name: value for name, value in fields[OWN_FIELD].items() if name != "digest"}
    rest = {name: value for name, value in fields.items() if name not in LICENSE_FIELDS}
    content = json.dumps([rest | {OWN_FIELD: own}, body.strip()], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def signed_card(data: CardData, text: str) -> str:
    """Return a card with its digest, by which a later push finds what its owner has edited."""
    data[OWN_FIELD]["digest"] = card_digest(f"---\n{data.to_yaml()}\n---\n\n{text}")
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


def _is_text(value: object) -> bool:
    """Return whether this is a text, or a list of texts, of the length of a license."""
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(
        isinstance(text, str) and 0 < len(text) <= MAX_LICENSE_LENGTH for text in texts
    )


def read_scores(card: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the scores that a card reports: `exact_match`, `n` and `token_accuracy`.

    `card` is the text of a README or its metadata, with any content. The result is None without an
    exact match as a fraction of `n` sequences; `token_accuracy` alone may be None.
    """
    try:
        content = split_card(card)[0] if isinstance(card, str) else card
        scores: dict[str, Any] = {}
        for model in content.get("model-index") or []:
            for metric in [metric for result in model["results"] for metric in result["metrics"]]:
                value, n = metric.get("value"), (metric.get("args") or {}).get("n")
                if is_number(value) and 0 <= value <= 1 and type(n) is int and 0 < n <= 10**9:
                    scores.setdefault(metric["type"], (float(value), n))
    except Exception:  # of any type, for malformed metadata
        return None
    if "exact_match" not in scores:
        return None
    exact_match, n = scores["exact_match"]
    return {
        "exact_match": exact_match,
        "n": n,
        "token_accuracy": scores.get("token_accuracy", (None, 0))[0],
    }


class NoAliasLoader(yaml.SafeLoader):
    """A safe YAML loader without aliases, a few of which can expand to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Return the metadata of a card and its text. Raises Exception of any type."""
    match = FRONT_MATTER_PATTERN.match(text[:MAX_FRONT_MATTER])
    if match is None:
        return {}, text
    return dict(yaml.load(match[1], Loader=NoAliasLoader) or {}), text[match.end() :]
