"""What both Python drivers share: they read sessions from standard input and print one JSON line
per operation, with the SDK's own result or error. The protocol is described in ../sessions.md."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

# More than any operation needs; a client that hangs must not hold up the others.
OPERATION_TIMEOUT_SECONDS = 30


class Recorder:
    """Prints the outcomes of one session."""

    def __init__(self, session: int) -> None:
        self.session = session

    def write(self, operation: str, outcome: dict[str, Any]) -> None:
        line = {"session": self.session, "do": operation, **outcome}
        print(json.dumps(line, ensure_ascii=False), flush=True)

    async def perform(self, operation: str, work: Awaitable[Any]) -> None:
        """Waits for the SDK's answer and writes it, or the error that the SDK raised."""
        try:
            result = await asyncio.wait_for(work, OPERATION_TIMEOUT_SECONDS)
        except Exception as error:
            self.write(operation, {"error": describe(error)})
        else:
            dump = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            self.write(operation, {"result": dump})


def describe(error: BaseException) -> dict[str, Any]:
    """An error with its JSON-RPC code, if it has one. Task groups wrap the error that matters."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    details = getattr(error, "error", None)
    return {
        "type": type(error).__name__,
        "message": str(error),
        "code": getattr(details, "code", None),
    }


Session = Callable[[Recorder, dict[str, Any]], Awaitable[None]]


async def run_session(number: int, session: Session, description: dict[str, Any]) -> None:
    """Runs a session to its end; connecting and disconnecting may fail like any operation."""
    recorder = Recorder(number)
    try:
        work = session(recorder, description)
        await asyncio.wait_for(work, 4 * OPERATION_TIMEOUT_SECONDS)
    except Exception as error:
        recorder.write("session", {"error": describe(error)})
    else:
        recorder.write("disconnect", {"result": {}})


def main(session: Session) -> None:
    """Reads the sessions and runs one after the other."""
    for number, description in enumerate(json.load(sys.stdin)):
        asyncio.run(run_session(number, session, description))
