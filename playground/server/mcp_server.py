"""The endpoints as MCP tools that answer with JSON.

Gradio 6.31 formats dictionaries as Python literals, returns no structured content, and names a tool
like its endpoint, so that `start` or `models` collide with tools of other servers. This module is
imported only if `gradio[mcp]` is installed.
"""

import json
from typing import Any

import orjson
from gradio import mcp
from mcp import types


class JsonMCPServer(mcp.GradioMCPServer):
    """Gradio's MCP server with JSON answers, structured content and prefixed tool names."""

    def get_tool_to_endpoint(self) -> dict[str, str]:
        self.tool_prefix = "playground_"  # on a Space, Gradio would use the name of the Space
        return super().get_tool_to_endpoint()

    def postprocess_output_data(self, data: Any, root_url: str) -> list[Any]:
        return [types.TextContent(type="text", text=orjson.dumps(each).decode()) for each in data]

    def create_mcp_server(self) -> Any:
        server = super().create_mcp_server()
        call = server.request_handlers[types.CallToolRequest]

        async def call_tool(request: types.CallToolRequest) -> types.ServerResult:
            result = await call(request)
            tool_result = result.root
            if isinstance(tool_result, types.CallToolResult) and not tool_result.isError:
                texts = [
                    each.text for each in tool_result.content if isinstance(each, types.TextContent)
                ]
                tool_result.structuredContent = json.loads(texts[0]) if len(texts) == 1 else None
            return result

        server.request_handlers[types.CallToolRequest] = call_tool
        return server


def install() -> None:
    """Make pages that are launched from now on serve MCP with `JsonMCPServer`."""
    mcp.GradioMCPServer = JsonMCPServer
