"""Measures how the cost of a call grows. See `growth`."""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from stand_ins import StandIns, read_environment

PASSAGES = [1_000, 10_000, 100_000]
KNOWLEDGE_BASES = [1, 10, 1_000]
TOP_K = [1, 5, 10, 20, 50]
BODY_BYTES = [1_024, 16_384, 65_536, 250_000]
QUERY = "How long can the old key stay valid after a rotation?"
# One that every passage of the corpus is likely to answer, so that many are looked at.
BROAD_QUERY = "employee key reference warranty holiday 员工 密钥 incident release"


def measure(emulator_settings, bootstrap, environment, event, count):
    """The cost of one kind of call on a fresh instance."""
    from measure import System

    system = System("raglan", [bootstrap], environment, {"call": (event, 200)})
    for _ in range(emulator_settings["rounds"]):
        system.warm(count)
    figures = system.calls["call"]
    return {**figures, "peak_kib": system.figures["peak_kib"]}


def dynamodb(environment, operation, request):
    """One call of the embedded DynamoDB, which asks for no signature that holds."""
    signature = "AWS4-HMAC-SHA256 Credential=local/20261130/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
    headers = {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": f"DynamoDB_20120810.{operation}",
        "authorization": signature,
        "x-amz-date": "20261130T000000Z",
    }
    url = environment["AWS_ENDPOINT_URL_DYNAMODB"] + "/"
    request = urllib.request.Request(url, json.dumps(request).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def own_knowledge_bases(environment, owner, count):
    """Gives `owner` so many copies of the entry of passages-1000. All of them lead to that index."""
    table = environment["CATALOG_TABLE"]
    found = dynamodb(environment, "Scan", {"TableName": table})["Items"]
    model = next(item for item in found if item.get("id", {}).get("S") == "passages-1000")
    name = model["sort"]["S"]
    writes = []
    for number in range(count):
        kb_id = f"{owner}-{number:04}"
        item = {**model, "id": {"S": kb_id}, "sort": {"S": name.replace("passages-1000", kb_id)}}
        item |= {"owner": {"S": owner}, "partition": {"S": f"owner#{owner}"}}
        writes.append({"PutRequest": {"Item": item}})
    for first in range(0, len(writes), 25):
        dynamodb(environment, "BatchWriteItem", {"RequestItems": {table: writes[first : first + 25]}})


def new_key(raglan, environment, owner):
    """A key of `owner` for all that is his."""
    grants = ["--owner", owner, "--tools", "all", "--kb", "all"]
    command = [raglan, "key", "create", owner, *grants, "--print", "--json"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"growth: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)["key"]


def index_bytes(environment, kb_id):
    folder = Path(environment["INDEX_DIR"]) / kb_id
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def series(x_values, point):
    rows = []
    for x in x_values:
        rows.append({"x": x, **point(x)})
        print(x, {name: rows[-1][name] for name in ("cpu_us", "p50_ms") if name in rows[-1]}, file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--emulator", required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--env-file", required=True)
    parser.add_argument("--raglan", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.emulator)
    from measure import machine, message, our_environment, tool_call

    environment = read_environment(arguments.env_file)
    settings, count = ({"rounds": 3}, 40) if arguments.quick else ({"rounds": 3}, 200)
    run = str(time.time_ns())
    with StandIns(environment) as stand_ins:
        # Large answers are not cut, so that what grows is what is asked for.
        ours = our_environment(environment, stand_ins.url, MAX_RESULT_TOKENS="1000000", MAX_RESULT_BYTES="4194304")
        system_key = environment["RAGLAN_KEY"]

        def cost(event):
            return measure(settings, arguments.bootstrap, ours, event, count)

        def search(key, **more):
            return cost(tool_call(key, "retrieve", **{"query": QUERY, "top_k": 5, **more}))

        def of_chunks(passages):
            kb_id = f"passages-{passages}"
            return {"index_bytes": index_bytes(environment, kb_id), **search(system_key, kb_id=kb_id, query=BROAD_QUERY)}

        keys = {}

        def owner_of(number):
            if number not in keys:
                owner = f"owner-{number}-{run}"
                own_knowledge_bases(environment, owner, number)
                keys[number] = (owner, new_key(arguments.raglan, environment, owner))
            return keys[number]

        def one_of_many(number):
            owner, key = owner_of(number)
            return search(key, kb_id=f"{owner}-0000")

        def all_of_many(number):
            return search(owner_of(number)[1])

        def body(size_bytes):
            event = message("tools/call", {"name": "retrieve", "arguments": {"query": QUERY, "top_k": 5, "kb_id": "passages-1000"}}, system_key)
            event["body"]["params"]["_meta"] = {"padding": ""}
            padding = size_bytes - len(json.dumps(event["body"]))
            event["body"]["params"]["_meta"]["padding"] = "x" * max(padding, 0)
            return cost(event)

        kept = {
            "machine": machine(),
            "passages_in_index": series(PASSAGES, of_chunks),
            "knowledge_bases_of_key_one_asked": series(KNOWLEDGE_BASES, one_of_many),
            "knowledge_bases_of_key_all_asked": series(KNOWLEDGE_BASES[:2] + [100], all_of_many),
            "passages_in_answer": series(TOP_K, lambda top_k: search(system_key, kb_id="passages-10000", top_k=top_k, query=BROAD_QUERY)),
            "request_bytes": series(BODY_BYTES, body),
        }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
