"""Content security policies of pages with inline scripts and styles."""

import base64
import hashlib


def source_hash(text: str) -> str:
    """Return the source expression that allows an inline text (CSP 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
