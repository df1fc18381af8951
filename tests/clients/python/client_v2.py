"""Driver for the Python package `mcp`, version 2. The mode of negotiation (`auto`, `legacy` or a
protocol revision) is the first argument."""

import sys
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from sessions import Recorder, main

MODE = sys.argv[1]


async def session(recorder: Recorder, description: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {description['key']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(description["url"], http_client=http)
        async with Client(transport, mode=MODE) as client:
            recorder.write("connect", {"result": hello(client)})
            for operation in description["operations"]:
                await recorder.perform(operation["do"], perform(client, operation))


def hello(client: Client) -> dict[str, Any]:
    """What was agreed, under the names of an `initialize` result. With a pinned revision the client
    asks nothing at first, so it knows neither server nor capabilities."""
    agreed = {"protocolVersion": client.protocol_version}
    told = {"capabilities": client.server_capabilities, "serverInfo": client.server_info}
    for name, value in told.items():
        if value is not None:
            agreed[name] = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return agreed


def perform(client: Client, operation: dict[str, Any]) -> Any:
    match operation["do"]:
        case "list_tools":
            return client.list_tools()
        case "call_tool":
            return client.call_tool(operation["name"], operation["arguments"])
        case "list_prompts":
            return client.list_prompts()
        case "get_prompt":
            return client.get_prompt(operation["name"], operation["arguments"])
        case "list_resources":
            return client.list_resources()
        case "read_resource":
            return client.read_resource(operation["uri"])
    raise ValueError(operation["do"])


main(session)
