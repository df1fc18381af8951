"""What every client is asked to do, and what it must have seen afterwards.

The questions are about the sample knowledge base (`examples/knowledge`)."""

import json
from collections.abc import Callable
from typing import Any

TOOLS = {
    "ask",
    "get_knowledge_base",
    "get_task",
    "list_documents",
    "list_knowledge_bases",
    "retrieve",
}
# What the limited key may call; `ask` is not among it.
LIMITED_TOOLS = ["retrieve"]
NOT_OFFERED = "not offered"

RETRIEVE_ENGLISH = "How many working days of paid annual leave in the Gothenburg leave policy 2026?"
RETRIEVE_CHINESE = "成都员工入职满一年有多少天年假？"
ASK_ENGLISH = "How long can the old key stay valid after a rotation?"
ASK_CHINESE = "成都员工入职满一年有多少天年假？"
KNOWLEDGE_BASE = "handbook"
PROMPT = "answer_from_knowledge_base"
RESOURCE = f"kb://{KNOWLEDGE_BASE}"


class Failed(Exception):
    """The client did not see what it should have."""


def sessions(url: str, key: str, limited_key: str, unknown_key: str) -> list[dict[str, Any]]:
    """The three sessions: everything; a call that the key does not allow; a key that nobody has."""

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"do": "call_tool", "name": tool, "arguments": arguments}

    full = [
        {"do": "list_tools"},
        call("retrieve", query=RETRIEVE_ENGLISH),
        call("retrieve", query=RETRIEVE_CHINESE),
        call("ask", question=ASK_ENGLISH),
        call("ask", question=ASK_CHINESE),
        call("retrieve", query=7),
        {"do": "list_prompts"},
        {"do": "get_prompt", "name": PROMPT, "arguments": {"question": ASK_ENGLISH}},
        {"do": "list_resources"},
        {"do": "read_resource", "uri": RESOURCE},
    ]
    limited = [{"do": "list_tools"}, call("ask", question=ASK_ENGLISH)]
    return [
        {"url": url, "key": key, "operations": full},
        {"url": url, "key": limited_key, "operations": limited},
        {"url": url, "key": unknown_key, "operations": [{"do": "list_tools"}]},
    ]


class Transcript:
    """The lines that a driver printed."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self.lines = lines

    def outcome(self, session: int, operation: str, occurrence: int = 0) -> dict[str, Any]:
        found = [x for x in self.lines if (x["session"], x["do"]) == (session, operation)]
        if occurrence < len(found):
            return found[occurrence]
        ended = [x for x in self.lines if (x["session"], x["do"]) == (session, "session")]
        raise Failed(f"did not come so far: {ended[0]['error'] if ended else 'no output'}")

    def result(self, session: int, operation: str, occurrence: int = 0) -> dict[str, Any]:
        outcome = self.outcome(session, operation, occurrence)
        if "error" in outcome:
            raise Failed(f"{operation}: {outcome['error']}")
        return outcome["result"]

    def hello(self) -> dict[str, Any]:
        return self.result(0, "connect")

    def structured(self, call: int) -> dict[str, Any]:
        """The structured result of the first session's tool call with this number. The text block
        says the same, for clients that know nothing else."""
        result = self.result(0, "call_tool", call)
        text = result["content"][0]["text"]
        if result.get("isError"):
            raise Failed(text)
        from_text = json.loads(text)
        structured = result.get("structuredContent", from_text)
        require(structured == from_text, "text and structure differ")
        return from_text


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Failed(otherwise)


def connect(transcript: Transcript, expected_revision: str) -> None:
    revision = transcript.hello().get("protocolVersion")
    require(revision == expected_revision, f"agreed on {revision}, expected {expected_revision}")


def list_tools(transcript: Transcript) -> None:
    names = {tool["name"] for tool in transcript.result(0, "list_tools")["tools"]}
    require(names == TOOLS, f"listed {sorted(names)}")


def retrieved(call: int, filename: str, words: str) -> Callable[[Transcript], None]:
    def check(transcript: Transcript) -> None:
        items = transcript.structured(call)["items"]
        from_file = [x["content"] for x in items if x["metadata"]["filename"] == filename]
        require(any(words in text for text in from_file), f"no passage of {filename} has {words!r}")

    return check


def answered(call: int, filename: str, words: str) -> Callable[[Transcript], None]:
    def check(transcript: Transcript) -> None:
        answer = transcript.structured(call)
        require(answer["grounded"], "the answer is not grounded")
        require(words in answer["answer"], f"the answer lacks {words!r}: {answer['answer']}")
        sources = [source["filename"] for source in answer["sources"]]
        require(filename in sources, f"the sources are {sources}")

    return check


def bad_argument(transcript: Transcript) -> None:
    outcome = transcript.outcome(0, "call_tool", 4)
    text = str(outcome.get("result") or outcome["error"])
    seen = outcome.get("result", {}).get("isError")
    require(seen is True and "query" in text, f"no tool error that names the argument: {text}")


def refused(transcript: Transcript) -> None:
    names = [tool["name"] for tool in transcript.result(1, "list_tools")["tools"]]
    require(names == LIMITED_TOOLS, f"a limited key lists {names}")
    error = transcript.outcome(1, "call_tool").get("error") or {}
    # The Inspector looks into the list first and does not even ask.
    seen = error.get("code") == -32001 or error.get("type") == "tool_not_found"
    require(seen, f"no error -32001: {error}")


def unknown_key(transcript: Transcript) -> None:
    """The error comes with the first request, which for a client that pinned the revision is the
    list: connecting asks nothing then."""
    lines = [x for x in transcript.lines if x["session"] == 2]
    results = [x["result"] for x in lines if "result" in x]
    served = [x for x in results if x.get("tools") or x.get("capabilities")]
    require(not served, "an unknown key was served")
    errors = [x["error"] for x in lines if "error" in x]
    require(bool(errors) and "in time" not in errors[0]["message"], f"no error: {lines}")


def prompt(transcript: Transcript) -> str | None:
    if not offered(transcript, "prompts"):
        return NOT_OFFERED
    names = [x["name"] for x in transcript.result(0, "list_prompts")["prompts"]]
    require(PROMPT in names, f"listed {names}")
    messages = transcript.result(0, "get_prompt")["messages"]
    require(ASK_ENGLISH in str(messages), "the question is not in the prompt")
    return None


def resource(transcript: Transcript) -> str | None:
    if not offered(transcript, "resources"):
        return NOT_OFFERED
    uris = [x["uri"] for x in transcript.result(0, "list_resources")["resources"]]
    require(RESOURCE in uris, f"listed {uris}")
    contents = transcript.result(0, "read_resource")["contents"]
    require(KNOWLEDGE_BASE in str(contents), f"read {contents}")
    return None


def offered(transcript: Transcript, capability: str) -> bool:
    """Whether the server says so. A client that pinned the revision asks nothing at first and knows
    no capabilities; for it, the refusal of the list is the word."""
    capabilities = transcript.hello().get("capabilities")
    if capabilities:
        return capability in capabilities
    error = transcript.outcome(0, f"list_{capability}").get("error") or {}
    return error.get("code") != -32601


def disconnect(transcript: Transcript) -> None:
    for session in (0, 1):
        transcript.result(session, "disconnect")


STEPS: list[tuple[str, Callable[[Transcript], str | None]]] = [
    ("list", list_tools),
    ("retrieve", retrieved(0, "hr/leave-policy-2026.md", "30 working days")),
    ("retrieve 中文", retrieved(1, "zh/hr/leave-chengdu.md", "12 天")),
    ("ask", answered(2, "raglan/rotation-and-audit.md", "0 to 7 days")),
    ("ask 中文", answered(3, "zh/hr/leave-chengdu.md", "12 天")),
    ("bad argument", bad_argument),
    ("refused", refused),
    ("unknown key", unknown_key),
    ("prompt", prompt),
    ("resource", resource),
    ("disconnect", disconnect),
]
