"""Driver for the Python package `mcp`, version 1."""

from typing import Any

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

from sessions import Recorder, main


async def session(recorder: Recorder, description: dict[str, Any]) -> None:
    headers = {"Authorization": f"Bearer {description['key']}"}
    async with streamablehttp_client(description["url"], headers=headers) as (read, write, _):
        async with ClientSession(read, write) as client:
            hello = await client.initialize()
            dump = hello.model_dump(mode="json", by_alias=True, exclude_none=True)
            recorder.write("connect", {"result": dump})
            for operation in description["operations"]:
                await recorder.perform(operation["do"], perform(client, operation))


def perform(client: ClientSession, operation: dict[str, Any]) -> Any:
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
            return client.read_resource(AnyUrl(operation["uri"]))
    raise ValueError(operation["do"])


main(session)
