"""Responses with an error, for routes whose body is not the JSON of a page."""

from collections.abc import Mapping

from starlette.responses import JSONResponse

from playground.errors import error_response


def json_error(
    error: Exception, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the response that reports an error."""
    return JSONResponse(error_response(error), status_code, headers)
