"""Driver for the command line of the MCP Inspector: every operation is a run of its own.

    python3 inspector.py NODE INSPECTOR ERA < sessions.json

NODE is a Node.js 22, INSPECTOR the program's file, ERA `legacy`, `auto` or `modern`."""

import json
import subprocess
import sys
import tempfile
from typing import Any

TIMEOUT_SECONDS = 60


def arguments_of(operation: dict[str, Any]) -> list[str]:
    match operation["do"]:
        case "connect":
            return ["--method", "initialize"]
        case "list_tools":
            # Fails when a tool's schema is one that model providers are known to refuse.
            return ["--method", "tools/list", "--strict"]
        case "call_tool":
            arguments = json.dumps(operation["arguments"])
            call = ["--method", "tools/call", "--tool-name", operation["name"]]
            return [*call, "--tool-args-json", arguments]
        case "list_prompts":
            return ["--method", "prompts/list"]
        case "get_prompt":
            pairs = [f"{name}={value}" for name, value in operation["arguments"].items()]
            get = ["--method", "prompts/get", "--prompt-name", operation["name"]]
            return [*get, "--prompt-args", *pairs]
        case "list_resources":
            return ["--method", "resources/list"]
        case "read_resource":
            return ["--method", "resources/read", "--uri", operation["uri"]]
    raise ValueError(operation["do"])


def outcome(standard_output: str, standard_error: str) -> dict[str, Any]:
    """The result, or the error that the Inspector prints as the last line."""
    if standard_output.strip():
        return {"result": json.loads(standard_output)["result"]}
    last = standard_error.strip().rsplit("\n", 1)[-1]
    try:
        error = json.loads(last)["error"]
    except (ValueError, KeyError):
        return {"error": {"type": "unknown", "message": last, "code": None}}
    return {"error": {"type": error["code"], "message": error["message"], "code": None}}


def main(node: str, inspector: str, era: str) -> None:
    # The Inspector keeps settings in the home directory.
    with tempfile.TemporaryDirectory() as home:
        for number, session in enumerate(json.load(sys.stdin)):
            common = [node, inspector, "--cli", session["url"], "--transport", "http"]
            common += ["--format", "json", "--protocol-era", era, "--stored-auth-only"]
            common += ["--header", f"Authorization: Bearer {session['key']}"]
            for operation in [{"do": "connect"}, *session["operations"]]:
                run = subprocess.run(
                    [*common, *arguments_of(operation)],
                    env={"HOME": home, "PATH": "/usr/bin:/bin"},
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_SECONDS,
                )
                result = outcome(run.stdout, run.stderr)
                line = {"session": number, "do": operation["do"], **result}
                if operation["do"] == "connect" and "error" in result:
                    line["do"] = "session"
                print(json.dumps(line, ensure_ascii=False), flush=True)
                if line["do"] == "session":
                    break
            else:
                print(json.dumps({"session": number, "do": "disconnect", "result": {}}))


main(*sys.argv[1:])
