"""Host on the Python package `mcp`, version 1."""

from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from operations import perform
from sessions import Recorder, main


async def session(recorder: Recorder, description: dict[str, Any]) -> None:
    program, *arguments = description["command"]
    parameters = StdioServerParameters(
        command=program, args=arguments, env=description["environment"]
    )
    async with stdio_client(parameters) as (read, write):
        async with ClientSession(read, write) as client:
            hello = await client.initialize()
            dump = hello.model_dump(mode="json", by_alias=True, exclude_none=True)
            recorder.write("connect", {"result": dump})
            for operation in description["operations"]:
                await recorder.perform(operation["do"], perform(client, operation))


main(session)
