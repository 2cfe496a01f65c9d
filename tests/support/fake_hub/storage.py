"""The storage of the LFS files: another host, with signed URLs instead of tokens.

As on the real Hub, it receives no token: the Hub is `127.0.0.1`, the storage is `localhost`, and
the storage rejects a request with a token and a signed URL.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from .store import Repo
from .wire import HubError, Request, Response, range_response

if TYPE_CHECKING:
    from .hub import FakeHub


def signature(hub: FakeHub, method: str, path: str) -> str:
    return hmac.new(hub.secret, f"{method} {path}".encode(), hashlib.sha256).hexdigest()


def signed_url(hub: FakeHub, method: str, repo: Repo, oid: str) -> str:
    path = f"/storage/{repo.kind}/{repo.id}/{oid}"
    return f"{hub.storage_url}{path}?X-Amz-Signature={signature(hub, method, path)}"


def handle_storage(hub: FakeHub, request: Request) -> Response:
    """Store or return the object of a signed URL."""
    if request.authorization:
        raise HubError(400, "Only one auth mechanism allowed: a signed address has no token")
    method = "GET" if request.method == "HEAD" else request.method
    _, _, kind, *id, oid = request.path.split("/") if request.path.count("/") >= 4 else [""] * 5
    repo = hub.repos.get((kind, "/".join(id)))
    expected = signature(hub, method, request.path)
    if repo is None or not hmac.compare_digest(request.first("X-Amz-Signature"), expected):
        raise HubError(403, "SignatureDoesNotMatch")
    if method == "PUT":
        if hashlib.sha256(request.body).hexdigest() != oid:
            raise HubError(400, "XAmzContentSHA256Mismatch")
        with hub.lock:
            repo.objects[oid] = request.body
        return Response(200, headers={"ETag": f'"{oid}"'})
    if method != "GET" or oid not in repo.objects:
        raise HubError(404, "NoSuchKey")
    return range_response(request, repo.objects[oid], {"ETag": f'"{oid}"'})
