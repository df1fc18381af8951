"""Deploys template.yaml into MiniStack, uses it, updates it and deletes it. Started by `run`."""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
CLIENTS = HERE.parent / "clients"
sys.path.insert(0, str(CLIENTS))

import checks  # noqa: E402
from account import REGION, Account, running_account  # noqa: E402

STACK = "raglan"
KNOWLEDGE_BASE = "handbook"
PUBLISHED = "parking"
UNKNOWN_KEY = "rgl_nobody_has_this_key"
DEPLOY_TIMEOUT_SECONDS = 300
CLIENT_TIMEOUT_SECONDS = 240
AUDIT_PATIENCE_SECONDS = 60
PACKAGES = {"McpFunction": "mcp", "AuditFunction": "audit"}


class Deployment:
    """The stack and what the steps of the test need to know of it."""

    def __init__(self, account: Account, arguments: argparse.Namespace) -> None:
        self.account = account
        self.programs = Path(arguments.programs)
        self.scratch = Path(arguments.scratch)
        self.sam = arguments.sam
        self.client_python = arguments.client
        self.packages = self.scratch / "packages"

    def outputs(self) -> dict[str, str]:
        stacks = self.account.client("cloudformation").describe_stacks(StackName=STACK)
        return {x["OutputKey"]: x["OutputValue"] for x in stacks["Stacks"][0]["Outputs"]}

    def resource(self, logical_id: str) -> str:
        cloudformation = self.account.client("cloudformation")
        detail = cloudformation.describe_stack_resource(
            StackName=STACK, LogicalResourceId=logical_id
        )
        return detail["StackResourceDetail"]["PhysicalResourceId"]

    @property
    def url(self) -> str:
        return self.account.function_url(self.outputs()["McpUrl"])

    def package(self) -> Path:
        """What `sam build` would leave: the programs, and the template that points to them."""
        template = (PROJECT / "template.yaml").read_text(encoding="utf-8")
        for logical_id, program in PACKAGES.items():
            folder = self.packages / program
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.programs / program, folder / "bootstrap")
            # The debugging information of a development build is most of its size.
            run(["strip", str(folder / "bootstrap")])
            before, found, after = template.partition(f"\n  {logical_id}:\n")
            source = re.compile(rf"CodeUri: functions/{program}(/program)?\n")
            check(bool(found and source.search(after)), f"template.yaml has no {logical_id}")
            after = source.sub(f"CodeUri: {folder}\n", after, count=1)
            template = before + found + after
        built = self.scratch / "template.yaml"
        built.write_text(template, encoding="utf-8")
        return built

    def deploy(self, **parameters: str) -> None:
        architecture = "arm64" if platform.machine() == "aarch64" else "x86_64"
        values = {"Architecture": architecture, "AlarmEmail": "nobody@example.com", **parameters}
        command = [self.sam, "deploy", "-t", str(self.package()), "--stack-name", STACK]
        command += ["--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset"]
        command += ["--region", REGION, "--no-progressbar", "--parameter-overrides"]
        command += [f"{name}={value}" for name, value in values.items()]
        output = run(command, self.account.environment, DEPLOY_TIMEOUT_SECONDS)
        say(output.strip().splitlines()[-1])

    def raglan(self, *words: str) -> str:
        command = [str(self.programs / "raglan"), *words, "--stack", STACK]
        return run(command, self.account.environment, 120)

    def audit_rows(self) -> list[dict[str, str]]:
        table = self.outputs()["AuditTable"]
        pages = self.account.client("dynamodb").get_paginator("scan")
        items = [x for p in pages.paginate(TableName=table, ConsistentRead=True) for x in p["Items"]]
        rows = [{name: next(iter(x.values())) for name, x in item.items()} for item in items]
        # The other items say how far the chains reach.
        return [row for row in rows if "decision" in row]

    def wait_for_rows(self, what: str, wanted: Callable[[dict[str, Any]], bool], least: int) -> None:
        deadline = time.monotonic() + AUDIT_PATIENCE_SECONDS
        while True:
            found = [row for row in self.audit_rows() if wanted(row)]
            if len(found) >= least:
                say(f"audit trail: {len(found)} rows: {what}")
                return
            if time.monotonic() > deadline:
                seen = [(x.get("tool"), x["decision"]) for x in self.audit_rows()]
                raise Failed(f"the audit trail has {len(found)} rows of: {what}; it has {seen}")
            time.sleep(0.5)


class Failed(Exception):
    """Something is not as it should be."""


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)


def run(command: list[str], environment: dict[str, str] | None = None, timeout: int = 60) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        text = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}".strip()
        raise Failed(f"{Path(command[0]).name} {command[1]} ended with {done.returncode}:\n{text}")
    return done.stdout


def first_deployment(deployment: Deployment) -> None:
    deployment.deploy()
    summaries = deployment.account.client("cloudformation").list_stack_resources(StackName=STACK)
    kinds: dict[str, int] = {}
    for resource in summaries["StackResourceSummaries"]:
        kinds[resource["ResourceType"]] = kinds.get(resource["ResourceType"], 0) + 1
    for kind, number in sorted(kinds.items()):
        say(f"{number:3} {kind}")


def both_permissions(deployment: Deployment) -> None:
    """Since October 2025 a public function URL needs two."""
    name = deployment.resource("McpFunction")
    policy = deployment.account.client("lambda").get_policy(FunctionName=name)["Policy"]
    actions = {x["Action"] for x in json.loads(policy)["Statement"] if "*" in str(x["Principal"])}
    wanted = {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}
    check(actions == wanted, f"everybody may {actions}")
    say(f"everybody may {', '.join(sorted(actions))}")


def alarms_and_dashboard(deployment: Deployment) -> None:
    cloudwatch = deployment.account.client("cloudwatch")
    topic = deployment.resource("AlarmTopic")
    pages = cloudwatch.get_paginator("describe_alarms").paginate()
    alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
    check(bool(alarms), "there is no alarm")
    for alarm in alarms:
        check(alarm["AlarmActions"] == [topic], f"{alarm['AlarmName']} tells nobody")
    say(f"{len(alarms)} alarms, all sent to {topic.rpartition(':')[2]}")
    name = deployment.resource("Dashboard")
    dashboard = json.loads(cloudwatch.get_dashboard(DashboardName=name)["DashboardBody"])
    for widget in dashboard["widgets"]:
        properties = widget["properties"]
        say(f"dashboard: {properties.get('title', widget['type'])}")


def keys_and_knowledge(deployment: Deployment) -> None:
    made = {}
    for name, tools in (("client", "all"), ("limited client", "retrieve")):
        words = ["key", "create", name, "--tools", tools, "--kb", "all", "--print", "--json"]
        made[name] = json.loads(deployment.raglan(*words))
        say(f"raglan key create: {made[name]['key_id']} ({tools})")
    deployment.keys = {name: key["key"] for name, key in made.items()}
    index = deployment.packages / "mcp" / "index"
    indexed = deployment.raglan(
        "index",
        str(PROJECT / "examples" / "knowledge"),
        "--kb",
        KNOWLEDGE_BASE,
        "--index-dir",
        str(index),
    )
    say(f"raglan index: {indexed.strip().splitlines()[0]}")
    deployment.wait_for_rows("keys made", lambda x: "key.create" in str(x.get("administration")), 2)


def update(deployment: Deployment) -> None:
    """Another parameter, and the index in the function's package."""
    before = {name: deployment.outputs()[name] for name in ("KeysTable", "AuditTable", "McpUrl")}
    rows = len(deployment.audit_rows())
    deployment.deploy(RateLimitPerMinute="77")
    after = {name: deployment.outputs()[name] for name in before}
    check(before == after, f"the update replaced something: {before} became {after}")
    check(len(deployment.audit_rows()) >= rows, "the update lost audit rows")
    function = deployment.account.client("lambda").get_function_configuration(
        FunctionName=deployment.resource("McpFunction")
    )
    limit = function["Environment"]["Variables"]["RATE_LIMIT_PER_MINUTE"]
    check(limit == "77", f"the function's limit is {limit}")
    say(f"the limit is {limit}; tables, audit rows and the URL are the same as before")


def real_client(deployment: Deployment) -> None:
    """The whole check of the client matrix, with both kinds of negotiation."""
    keys = deployment.keys
    sessions = checks.sessions(
        deployment.url, keys["client"], keys["limited client"], UNKNOWN_KEY
    )
    for mode in ("legacy", "auto"):
        command = [deployment.client_python, str(CLIENTS / "python" / "client_v2.py"), mode]
        done = subprocess.run(
            command,
            input=json.dumps(sessions),
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_SECONDS,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        check(bool(lines), f"the client said nothing: {done.stderr[-1000:]}")
        transcript = checks.Transcript(lines)
        hello = transcript.hello()
        say(f"mcp 2.3.0, {mode}: revision {hello.get('protocolVersion')}")
        for name, step in checks.STEPS:
            try:
                outcome = step(transcript)
            except checks.Failed as problem:
                raise Failed(f"{mode}: {name}: {problem}") from problem
            say(f"  {name}: {outcome or 'ok'}")


def audit_rows(deployment: Deployment) -> None:
    """Written by the audit function, which the event source mapping calls."""
    for tool, decision, least in (
        ("retrieve", "allowed", 4),
        ("ask", "allowed", 4),
        ("ask", "denied", 2),
        (None, "unauthenticated", 2),
    ):
        what = f"{tool or 'no tool'}, {decision}"
        wanted = lambda row, pair=(tool, decision): (row.get("tool"), row["decision"]) == pair  # noqa: E731
        deployment.wait_for_rows(what, wanted, least)
    queue = deployment.account.client("sqs").get_queue_attributes(
        QueueUrl=deployment.outputs()["AuditDeadLetterQueueUrl"],
        AttributeNames=["ApproximateNumberOfMessages"],
    )
    dead = queue["Attributes"]["ApproximateNumberOfMessages"]
    check(dead == "0", f"{dead} dead letters")
    say("no dead letters")


def retrieved(deployment: Deployment, query: str) -> str:
    """What `retrieve` answers, as text."""
    arguments = {"query": query, "kb_id": PUBLISHED}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "retrieve", "arguments": arguments}
    headers = {
        "Authorization": f"Bearer {deployment.keys['client']}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(deployment.url, json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=CLIENT_TIMEOUT_SECONDS) as answer:
        return json.dumps(json.load(answer))


def published_index(deployment: Deployment) -> None:
    """An index in S3 answers, and a newer one takes its place without a deployment."""
    s3 = deployment.account.client("s3")
    s3.create_bucket(Bucket="team-indexes")
    uri = "s3://team-indexes/raglan/"
    documents, index = deployment.scratch / "documents", deployment.scratch / "index"
    documents.mkdir()

    def publish(text: str) -> None:
        (documents / "parking.md").write_text(f"# Parking\n\n{text}\n", encoding="utf-8")
        words = ["index", str(documents), "--kb", PUBLISHED, "--index-dir", str(index)]
        say(deployment.raglan(*words, "--publish", uri).strip().splitlines()[-1])

    publish("Bicycles stand in the yard.")
    deployment.deploy(RateLimitPerMinute="77", IndexS3Uri=uri, IndexRefreshSeconds="5")
    answer = retrieved(deployment, "bicycles")
    check("in the yard" in answer, f"the published index does not answer: {answer[:2000]}")
    publish("Bicycles stand in the cellar.")
    deadline = time.monotonic() + AUDIT_PATIENCE_SECONDS
    while "in the cellar" not in (answer := retrieved(deployment, "bicycles")):
        check(time.monotonic() < deadline, f"the old index answers on: {answer[:2000]}")
        time.sleep(1)
    objects = s3.list_objects_v2(Bucket="team-indexes")["Contents"]
    for name in sorted(x["Key"] for x in objects):
        say(name)


def closed_day(deployment: Deployment) -> None:
    """An event of yesterday, by the command for lost ones; its day is closed, and then changed."""
    yesterday = (datetime.now(UTC) - timedelta(days=1)).strftime("%Y-%m-%d")
    event = {
        "schema_version": 2,
        "event_id": "01943b5c-0000-7000-8000-000000000001",
        "at": f"{yesterday}T12:00:00.000Z",
        "request_id": "lost",
        "decision": "allowed",
        "http_status": 200,
        "key_id": "key-lost",
        "duration_ms": 3,
    }
    log = deployment.scratch / "lost.log"
    entry = {"level": "ERROR", "marker": "AUDIT_NOT_SENT", "event": json.dumps(event)}
    log.write_text(f"{yesterday}T12:00:01.000Z {json.dumps(entry)}\n", encoding="utf-8")
    deployment.raglan("audit", "recover", str(log))
    deployment.wait_for_rows("recovered", lambda row: row.get("key_id") == "key-lost", 1)

    lambda_client, s3 = deployment.account.client("lambda"), deployment.account.client("s3")
    answer = lambda_client.invoke(
        FunctionName=deployment.resource("AuditFunction"),
        Payload=json.dumps({"task": "close_days"}),
    )
    closed = json.loads(answer["Payload"].read())
    check(closed.get("closed", [{}])[0].get("day") == yesterday, f"the function says {closed}")
    bucket = deployment.outputs()["AuditRootsBucket"]
    versions = s3.list_object_versions(Bucket=bucket, Prefix=f"{yesterday}/")["Versions"]
    name = f"{yesterday}/000001.json"
    check([x["Key"] for x in versions] == [name], f"the bucket has {versions}")
    root = json.loads(s3.get_object(Bucket=bucket, Key=name)["Body"].read())
    check(root["root"] == closed["closed"][0]["root"], f"the root is {root}")
    # MiniStack's CloudFormation leaves the lock out: infra/check looks at the template instead.
    say(f"{name}: {root['event_count']} event")

    words = ["audit", "verify", "--from", yesterday, "--to", yesterday]
    say(deployment.raglan(*words).strip().splitlines()[-1])
    deployment.account.client("dynamodb").update_item(
        TableName=deployment.outputs()["AuditTable"],
        Key={"partition": {"S": f"key-lost#{yesterday}"}, "event_id": {"S": event["event_id"]}},
        UpdateExpression="SET decision = :denied",
        ExpressionAttributeValues={":denied": {"S": "denied"}},
    )
    try:
        deployment.raglan(*words)
    except Failed as refusal:
        check("was altered" in str(refusal), str(refusal))
    else:
        raise Failed("a changed event passed for an unchanged one")
    say("a changed event was found")


def deletion(deployment: Deployment) -> None:
    """The stack goes; keys and audit events stay and refuse to be deleted by mistake."""
    account, outputs = deployment.account, deployment.outputs()
    dynamodb = account.client("dynamodb")
    kept = {name: outputs[name] for name in ("KeysTable", "AuditTable")}
    account.client("cloudformation").delete_stack(StackName=STACK)
    waiter = account.client("cloudformation").get_waiter("stack_delete_complete")
    waiter.wait(StackName=STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    tables = dynamodb.list_tables()["TableNames"]
    check(set(tables) == set(kept.values()), f"left are {tables}, expected {kept}")
    for name, table in kept.items():
        items = dynamodb.scan(TableName=table, Select="COUNT")["Count"]
        check(items > 0, f"{name} is empty")
        try:
            dynamodb.delete_table(TableName=table)
        except dynamodb.exceptions.ClientError as refusal:
            code = refusal.response["Error"]["Code"]
        else:
            raise Failed(f"{name} could be deleted")
        say(f"{name} outlived the stack with {items} items; deleting it: {code}")
        dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)
        dynamodb.delete_table(TableName=table)
    say(f"left after that: {dynamodb.list_tables()['TableNames']}")


STEPS = [
    ("sam deploy", first_deployment),
    ("who may call the URL", both_permissions),
    ("alarms and dashboard", alarms_and_dashboard),
    ("keys and a knowledge base", keys_and_knowledge),
    ("sam deploy with other parameters", update),
    ("a real client through the function URL", real_client),
    ("audit trail", audit_rows),
    ("an index from S3", published_index),
    ("a closed day", closed_day),
    ("deletion", deletion),
]


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("programs", "scratch", "sam", "client"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    passed = 0
    with running_account(Path(arguments.scratch)) as account:
        deployment = Deployment(account, arguments)
        for name, step in STEPS:
            started = time.monotonic()
            print(f"\n── {name}", flush=True)
            try:
                step(deployment)
            except Failed as problem:
                print(f"FAILED: {problem}\n\nMiniStack's log ends with:")
                print(account.log.read_text(encoding="utf-8", errors="replace")[-3000:])
                break
            passed += 1
            say(f"({time.monotonic() - started:.1f} s)")
    failed = len(STEPS) - passed
    print(f"\ndeployment: {passed} passed, {failed} failed or not reached")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
