"""The buckets of the fake Hub: folders, which its jobs mount.

The contents travel through hf_xet, as on the real Hub, but its storage is a folder instead of a
server. Only clients in the process of the fake Hub can use it, because hf_xet locks the folder.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from .store import format_timestamp, now
from .wire import HubError, Request, Response, json_response
from .writing import find_writer

if TYPE_CHECKING:
    from .hub import FakeHub


@dataclass
class Bucket:
    """A bucket; `hashes` has the hash of each path, with the content that has it."""

    id: str
    folder: Path
    private: bool
    hashes: dict[str, tuple[bytes, str]] = field(default_factory=dict)


def find_bucket(hub: FakeHub, request: Request, id: str) -> Bucket:
    """Return a bucket that the account of a request can write; others are hidden."""
    account = hub.account(request)
    if account is None or id not in hub.buckets or not account.can_write(id.split("/")[0]):
        raise HubError(404 if account else 401, code="RepoNotFound")
    return hub.buckets[id]


def storage(hub: FakeHub) -> dict[str, Any]:
    """Return the storage of hf_xet, as arguments of its sessions."""
    expiry = int(time.time()) + 3600
    endpoint = f"local://{hub.folder}/xet"
    return {"endpoint": endpoint, "token": "xet", "token_expiry_unix_secs": expiry}


def create_bucket(hub: FakeHub, request: Request, id: str) -> Response:
    find_writer(hub, request, id.split("/")[0])
    url = f"{hub.url}/buckets/{id}"
    if id in hub.buckets:
        raise HubError(409, "You already created this bucket", url=url)
    folder = hub.folder / "buckets" / id
    folder.mkdir(parents=True)
    hub.buckets[id] = Bucket(id, folder, request.json().get("visibility") == "private")
    return json_response({"url": url, "name": id, "id": id})


def xet_token(hub: FakeHub, request: Request, id: str) -> Response:
    find_bucket(hub, request, id)
    access = storage(hub)
    fields = {"casUrl": "endpoint", "accessToken": "token", "exp": "token_expiry_unix_secs"}
    return json_response({name: access[field] for name, field in fields.items()})


def batch_bucket(hub: FakeHub, request: Request, id: str) -> Response:
    """Store the files whose contents the client has uploaded."""
    from hf_xet import XetFileInfo
    from huggingface_hub.utils._xet import get_xet_session

    bucket = find_bucket(hub, request, id)
    with get_xet_session().new_file_download_group(**storage(hub)) as group:
        for line in request.body.splitlines():
            operation = json.loads(line)
            if operation["type"] != "addFile":
                raise HubError(400, f"Invalid operation: {operation['type']}")
            path = bucket.folder / operation["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            group.start_download_file(XetFileInfo(operation["xetHash"], None), str(path))
    return json_response({"success": True, "failed": []})


def bucket_tree(hub: FakeHub, request: Request, id: str, prefix: str | None) -> Response:
    bucket, start = find_bucket(hub, request, id), unquote(prefix or "/")[1:]
    paths = [path for path in sorted(bucket.folder.rglob("*")) if path.is_file()]
    names = {path.relative_to(bucket.folder).as_posix(): path for path in paths}
    selected = {name: path for name, path in names.items() if name.startswith(start)}
    date = format_timestamp(now())
    hashes = _hashes(hub, bucket, selected)
    return json_response(
        [
            {"type": "file", "path": name, "size": len(content), "xetHash": hash}
            | {"mtime": date, "uploadedAt": date}
            for name, (content, hash) in hashes.items()
        ]
    )


def _hashes(hub: FakeHub, bucket: Bucket, paths: dict[str, Path]) -> dict[str, tuple[bytes, str]]:
    """Return the content and the hash of files; what a job has written is uploaded first."""
    from hf_xet import SKIP_SHA256
    from huggingface_hub.utils._xet import get_xet_session

    contents = {name: path.read_bytes() for name, path in paths.items()}
    known = bucket.hashes
    new = {name: data for name, data in contents.items() if known.get(name, (None,))[0] != data}
    if new:
        with get_xet_session().new_upload_commit(**storage(hub)) as commit:
            uploads = {
                name: commit.start_upload_bytes(data, sha256=SKIP_SHA256)
                for name, data in new.items()
            }
        for name, upload in uploads.items():
            known[name] = new[name], upload.result().xet_info.hash
    return {name: known[name] for name in contents}


def resolve_bucket(hub: FakeHub, request: Request, id: str, path: str) -> Response:
    bucket, name = find_bucket(hub, request, id), unquote(path)
    if not (bucket.folder / name).is_file():
        raise HubError(404, "File not found", "EntryNotFound")
    content, hash = _hashes(hub, bucket, {name: bucket.folder / name})[name]
    refresh = f"{hub.url}/api/buckets/{quote(id)}/xet-read-token"
    headers = {"X-Xet-Hash": hash, "X-Linked-Size": str(len(content))}
    return Response(200, b"", headers | {"Link": f'<{refresh}>; rel="xet-auth"'})
