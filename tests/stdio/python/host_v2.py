"""Host on the Python package `mcp`, version 2. The mode of negotiation (`auto`, `legacy` or a protocol
revision) is the first argument."""

import sys
from typing import Any

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from operations import perform
from sessions import Recorder, main

MODE = sys.argv[1]


async def session(recorder: Recorder, description: dict[str, Any]) -> None:
    program, *arguments = description["command"]
    parameters = StdioServerParameters(
        command=program, args=arguments, env=description["environment"]
    )
    async with Client(stdio_client(parameters), mode=MODE) as client:
        recorder.write("connect", {"result": hello(client)})
        for operation in description["operations"]:
            await recorder.perform(operation["do"], perform(client, operation))


def hello(client: Client) -> dict[str, Any]:
    """What was agreed, under the names of an `initialize` result; what the client asks for only later
    is left out."""
    agreed = {"protocolVersion": client.protocol_version}
    if client.server_capabilities is not None:
        capabilities = client.server_capabilities
        agreed["capabilities"] = capabilities.model_dump(mode="json", exclude_none=True)
    return agreed


main(session)
