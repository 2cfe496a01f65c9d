"""The card that a repository has before a push: what its owner wrote in it stays."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .card_scores import split_card

LICENSE_FIELDS = ("license", "license_name", "license_link")
OWN_FIELD = "playground"  # of a card that a push has written
MAX_LICENSE_LENGTH = 200


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
    license = {name: fields[name] for name in LICENSE_FIELDS if _is_text(fields.get(name))}
    own = fields.get(OWN_FIELD)
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


def card_license(text: str) -> dict[str, Any]:
    """Return the metadata of a card's license; none if it cannot be read."""
    try:
        fields, _ = split_card(text)
    except Exception:  # YAML constructors raise arbitrary errors
        return {}
    return {name: fields[name] for name in LICENSE_FIELDS if _is_text(fields.get(name))}


def card_digest(text: str) -> str:
    """Return a digest of a card without its license and the digest itself."""
    fields, body = split_card(text)
    own = {name: value for name, value in fields[OWN_FIELD].items() if name != "digest"}
    rest = {name: value for name, value in fields.items() if name not in LICENSE_FIELDS}
    content = json.dumps([rest | {OWN_FIELD: own}, body.strip()], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _is_text(value: object) -> bool:
    """Return whether this is a text, or a list of texts, of the length of a license."""
    texts = value if isinstance(value, list) else [value]
    return bool(texts) and all(
        isinstance(text, str) and 0 < len(text) <= MAX_LICENSE_LENGTH for text in texts
    )
