"""Serve the description of the public API: each endpoint with its arguments and two programs.

Names and types are those of /gradio_api/info, texts those of the endpoints.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from playground.common.format import source_hash

from . import project_files
from .api import ENDPOINTS
from .api_calls import Endpoint, has_mcp
from .asgi import root_url
from .hub_token import is_space

FOLDER = Path(__file__).with_name("templates")
STYLE = project_files.STYLE + (FOLDER / "api_page.css").read_text("utf-8")
SCRIPT = (FOLDER / "api_page.js").read_text("utf-8")
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src {source_hash(STYLE)}; script-src {source_hash(SCRIPT)}; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def example_arguments(endpoint: type[Endpoint]) -> dict[str, Any]:
    """Return the arguments of the programs of an endpoint: those with an example."""
    fields = endpoint.model_fields
    return {name: field.examples[0] for name, field in fields.items() if field.examples}


def python_program(url: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a program that calls an endpoint with gradio_client and prints the result."""
    values = "".join(f"    {key}={json.dumps(value)},\n" for key, value in arguments.items())
    return (
        f'from gradio_client import Client\n\nclient = Client("{url}")\n'
        f'result = client.predict(\n{values}    api_name="/{name}",\n)\nprint(result)'
    )


def shell_program(url: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return commands that call an endpoint with curl and print the events of the call."""
    body = shlex.quote(json.dumps(arguments))
    return (
        f"EVENT_ID=$(curl -s {url}gradio_api/call/v2/{name} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {body} | cut -d '\"' -f 4)\n"
        f"curl -sN {url}gradio_api/call/{name}/$EVENT_ID"
    )


def type_name(schema: Mapping[str, Any]) -> str:
    """Return the name of a type, as JSON names it."""
    if "enum" in schema:
        return ", ".join(map(json.dumps, schema["enum"]))
    if "oneOf" in schema:
        return " or ".join(sorted(map(type_name, schema["oneOf"]), key="null".__eq__))
    return f"list of {type_name(schema['items'])}" if "items" in schema else schema["type"]


def respond(request: Request) -> HTMLResponse:
    """Respond with the page; its programs have the address that the client uses."""
    blocks = request.app.get_blocks()
    url = root_url(request)
    endpoints = []
    for name, info in blocks.get_api_info()["named_endpoints"].items():
        endpoint = ENDPOINTS[name[1:]]
        description, returns = endpoint.texts()
        texts = {
            "name": name[1:],
            "description": description,
            "meanings": {key: each.description for key, each in endpoint.model_fields.items()},
            "returns": returns,
            "python": python_program(url, name[1:], example_arguments(endpoint)),
            "shell": shell_program(url, name[1:], example_arguments(endpoint)),
        }
        endpoints.append(texts | {"arguments": info["parameters"]})
    servers = {"mcpServers": {"playground": {"url": f"{url}gradio_api/mcp/"}}}
    page = project_files.TEMPLATES.get_template("api_page.html.j2").render(
        title="API",
        home="./",
        links=project_files.ProjectFiles().links(),
        style=Markup(STYLE),
        script=Markup(SCRIPT),
        url=url,
        endpoints=endpoints,
        type_name=type_name,
        mcp=json.dumps(servers, indent=2) if has_mcp() else "",
        is_space=is_space(),
    )
    headers = {"cache-control": "no-cache", "content-security-policy": CONTENT_SECURITY_POLICY}
    return HTMLResponse(page, headers=headers)


API_PAGE = Route("/api", respond, methods=["GET"])
