"""The Hub token of a request.

On a Space the token is that of the user who signed in with Hugging Face, never that of the Space.
A local instance uses the token of `hf auth login`. A local or shared instance outside of a Space
also accepts a token that the user enters on the page. It is used for one job and not stored.
"""

import os
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from playground.errors import UserError
from playground.hub.repo_ids import INVALID_TOKEN, is_token, machine_token

JOBS_SCOPE = "jobs"
JobsAccess = Literal["ready", "sign-in", "no-token", "off"]


def is_space() -> bool:
    return "SPACE_ID" in os.environ


def can_sign_in() -> bool:
    """Return whether users can sign in with Hugging Face here.

    Outside of a Space, the button of Gradio would sign in every user as the owner.
    """
    return is_space() and os.environ.get("SYSTEM") == "spaces" and "OAUTH_CLIENT_ID" in os.environ


def jobs_access(session: Mapping[str, Any], is_single_user: bool) -> JobsAccess:
    """Return whether the requester may start jobs of Hugging Face, for which their account pays.

    On a Space, its owner offers that by the scope `jobs` in the README, and a user grants
    it only when jobs are wanted. A server of several users outside a Space stores no token.
    """
    if not is_space():
        return "ready" if is_single_user else "off"
    if not can_sign_in() or JOBS_SCOPE not in os.environ.get("OAUTH_SCOPES", "").split():
        return "off"
    has_token = bool(resolve_token("", session, is_single_user))
    scopes = session["oauth_info"].get("scope") if has_token else ""
    return "ready" if isinstance(scopes, str) and JOBS_SCOPE in scopes.split() else "sign-in"


def narrow_sign_in(location: str, query: Mapping[str, list[str]]) -> str:
    """Return the address of the sign-in without the scope of jobs, unless the page wants them."""
    if query.get("scope") == [JOBS_SCOPE]:
        return location
    url = urlsplit(location)
    fields = dict(parse_qsl(url.query, keep_blank_values=True))
    if "scope" in fields:
        fields["scope"] = " ".join(each for each in fields["scope"].split() if each != JOBS_SCOPE)
    return urlunsplit(url._replace(query=urlencode(fields)))


def resolve_token(entered: str, session: Mapping[str, Any], is_single_user: bool) -> str:
    """Return the token of a request, or ""; raise UserError for a text that is none."""
    if is_space():
        oauth_info = session.get("oauth_info")
        if not isinstance(oauth_info, dict):
            return ""
        expires_at = oauth_info.get("expires_at")
        if not isinstance(expires_at, int | float) or not expires_at >= time.time():  # also NaN
            return ""
        token = oauth_info.get("access_token")
        return token if isinstance(token, str) else ""
    if entered := entered.strip():
        if not is_token(entered):
            raise UserError(INVALID_TOKEN)
        return entered
    return machine_token() if is_single_user else ""
