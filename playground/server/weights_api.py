"""Serve the weights of a model to the engine of the page (ui/static/engine).

    GET playground/weights?subject=run:ID&step=143&series_id=7   Header: X-Owner, the owner key

The header X-Step of the response names the step: the nearest one with stored weights. A run gets
another series id before one of its steps gets other weights, so a browser may cache the response.
"""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from playground.checkpoints.manifest import cached_manifest
from playground.common.validation import parse
from playground.errors import BusyError, UserError
from playground.jobs.admission import CLIENT_ADDRESS
from playground.runs.access import NOT_FOUND, Access, ModelRef, Right, require
from playground.runs.browser_model import runs_in_browser
from playground.runs.registry import Registry
from playground.runs.weight_history import NO_WEIGHTS, find_weights, weights_path

from .asgi import json_error
from .rate_limit import LoadLimits
from .schemas.base import Index

WEIGHTS_PATH = "/playground/weights"
BYTES_PER_MS = 200_000  # that the server reads, hashes and sends in a millisecond


class LoadWeights(ModelRef):
    """A model and the step of its weights, from a URL."""

    step: Annotated[Index, Field(strict=False)]


def weights_route(registry: Registry, load: LoadLimits) -> Route:
    """Return the route; `load` counts the bytes of its responses."""

    async def send_weights(http_request: Request) -> Response:
        fields = dict(http_request.query_params) | {"owner": http_request.headers.get("x-owner")}
        try:
            request = parse(LoadWeights, fields)
            path, step, sha256, about = await asyncio.to_thread(_find, registry, request)
        except (ValueError, OSError) as error:
            return json_error(error, 404 if getattr(error, "code", "") == NOT_FOUND else 400)
        headers = {
            "ETag": f'"{sha256}"',
            "X-Step": str(step),
            "Cache-Control": "private, max-age=31536000, immutable",
            "Vary": "X-Owner",
        }
        if http_request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        milliseconds = about.st_size / BYTES_PER_MS
        load.add(CLIENT_ADDRESS.get(), request.owner, milliseconds)
        media_type = "application/octet-stream"
        return FileResponse(path, headers=headers, media_type=media_type, stat_result=about)

    return Route(WEIGHTS_PATH, send_weights, methods=["GET"])


def _find(registry: Registry, request: LoadWeights) -> tuple[Path, int, str, os.stat_result]:
    """Return the file of the weights, their step, and its SHA-256 and size. It reads the disk."""
    model = require(registry, request, Right.USE)
    if not runs_in_browser(model.config):
        raise UserError("the page does not run this model by itself; choose a smaller one")
    path, step = _locate(model, request.step)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return path, step, digest, os.fstat(file.fileno())


def _locate(model: Access, step: int) -> tuple[Path, int]:
    if (run := model.run) is None:
        return model.folder / "model.safetensors", cached_manifest(model.folder).step
    nearest = find_weights(run.folder, step)
    if nearest is None:
        raise BusyError(NO_WEIGHTS)
    return weights_path(run.folder, nearest), nearest
