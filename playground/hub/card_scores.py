"""The scores that a model card reports. A card may come from any repository."""

import re
from collections.abc import Mapping
from typing import Any

import yaml  # type: ignore[import-untyped]

from playground.checkpoints.manifest import is_number

MAX_FRONT_MATTER = 100_000  # characters
FRONT_MATTER_PATTERN = re.compile(r"\s*---\r?\n(.*?)^---\s*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def read_scores(card: str | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the scores that a card reports: `exact_match`, `n` and `token_accuracy`.

    `card` is the text of a README or its metadata. The result is None if the card reports no exact
    match as a fraction of `n` sequences; `token_accuracy` alone may be None. No content of a card
    raises an error.
    """
    try:
        content = split_card(card)[0] if isinstance(card, str) else card
        scores: dict[str, Any] = {}
        for model in content.get("model-index") or []:
            for metric in [metric for result in model["results"] for metric in result["metrics"]]:
                value, n = metric.get("value"), (metric.get("args") or {}).get("n")
                if is_number(value) and 0 <= value <= 1 and type(n) is int and 0 < n <= 10**9:
                    scores.setdefault(metric["type"], (float(value), n))
    except Exception:
        # The card is untrusted; YAML constructors and malformed metadata raise arbitrary errors.
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
    """Return the metadata of a card and its text.

    Raises:
        Exception: of any type, for malformed metadata.
    """
    match = FRONT_MATTER_PATTERN.match(text[:MAX_FRONT_MATTER])
    if match is None:
        return {}, text
    return dict(yaml.load(match[1], Loader=NoAliasLoader) or {}), text[match.end() :]
