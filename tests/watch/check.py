"""Calls the endpoint of `cargo lambda watch` and waits for the call's audit row. Started by `run`.

    python3 check.py ENV_FILE URL SECONDS

SECONDS is how long the first answer may take: the functions start when they are first asked."""

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "harness"))
from local_dynamodb import call, read_variables  # noqa: E402

QUERY = "How long can the old key stay valid after a rotation?"
AUDIT_PATIENCE_SECONDS = 120


def retrieve(url: str, key: str, timeout: float) -> dict[str, Any]:
    arguments = {"query": QUERY, "top_k": 3}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": "retrieve", "arguments": arguments}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)


def first_answer(url: str, key: str, patience: float) -> dict[str, Any]:
    """Asks until the functions are up."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return retrieve(url, key, timeout=patience)
        except (urllib.error.URLError, ConnectionError) as error:
            refused = not isinstance(error, urllib.error.HTTPError)
            if time.monotonic() > deadline or not (refused or error.code >= 500):
                raise
            time.sleep(1)


def audit_rows(variables: dict[str, str]) -> list[dict[str, Any]]:
    endpoint = variables["AWS_ENDPOINT_URL_DYNAMODB"]
    table = {"TableName": variables["AUDIT_TABLE"], "ConsistentRead": True}
    items = call(endpoint, "Scan", table)["Items"]
    # The others are heads of chains and marks of open days.
    return [item for item in items if "decision" in item]


def main(env_file: str, url: str, patience: float) -> None:
    variables = read_variables(env_file)
    started = time.monotonic()
    answer = first_answer(url, variables["RAGLAN_KEY"], patience)
    items = answer["result"]["structuredContent"]["items"]
    if not items:
        sys.exit(f"no passages: {answer}")
    source = items[0]["metadata"]["filename"]
    print(f"retrieve through cargo lambda watch: {len(items)} passages, the first from {source}")
    print(f"  {time.monotonic() - started:.1f} s until the first answer")

    deadline = time.monotonic() + AUDIT_PATIENCE_SECONDS
    while not (rows := audit_rows(variables)):
        if time.monotonic() > deadline:
            sys.exit("the audit function stored nothing")
        time.sleep(0.5)
    seen = [(row["tool"]["S"], row["decision"]["S"]) for row in rows]
    if ("retrieve", "allowed") not in seen:
        sys.exit(f"the audit rows are {seen}")
    print("the audit function stored the call")


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
