"""Runs every client against a running server and prints who saw what. Started by `run`."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import checks

HERE = Path(__file__).parent
TABLE_BEGINS, TABLE_ENDS = "<!-- client matrix: begin -->", "<!-- client matrix: end -->"
CLIENT_TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class Client:
    """One row. `runtime` names the environment that `run` has installed."""

    name: str
    version: str
    mode: str
    revision: str
    runtime: str
    driver: str
    quick: bool = False


def python(version: str, revision: str, mode: str = "", quick: bool = False) -> Client:
    driver = "client_v2.py" if version.startswith("2") else "client_v1.py"
    return Client("Python mcp", version, mode, revision, f"python-{version}", driver, quick)


def typescript(version: str, revision: str, quick: bool = False) -> Client:
    name = "@modelcontextprotocol/sdk"
    return Client(name, version, "", revision, f"sdk-{version}", "client_v1.mjs", quick)


def typescript_2(mode: str, revision: str) -> Client:
    name = "@modelcontextprotocol/client"
    return Client(name, "2.4.0", mode, revision, "client-2.4.0", "client_v2.mjs", True)


def inspector(mode: str, revision: str) -> Client:
    name = "Inspector CLI"
    return Client(name, "2.12.0", mode, revision, "inspector-2.12.0", "inspector.py")


def rust(mode: str, revision: str) -> Client:
    return Client("rmcp", "3.11.0", mode, revision, "rmcp-3.11.0", "rmcp-client", True)


CLIENTS = [
    python("1.9.4", "2025-03-26"),
    python("1.12.4", "2025-06-18"),
    python("1.22.0", "2025-06-18"),
    python("1.30.0", "2025-11-25", quick=True),
    python("2.3.0", "2025-11-25", "legacy", quick=True),
    python("2.3.0", "2026-07-28", "auto", quick=True),
    python("2.3.0", "2026-07-28", "2026-07-28", quick=True),
    typescript("1.12.3", "2025-03-26"),
    typescript("1.20.2", "2025-06-18"),
    typescript("1.32.2", "2025-11-25", quick=True),
    typescript_2("legacy", "2025-11-25"),
    typescript_2("auto", "2026-07-28"),
    typescript_2("2026-07-28", "2026-07-28"),
    inspector("legacy", "2025-11-25"),
    inspector("auto", "2026-07-28"),
    inspector("modern", "2026-07-28"),
    rust("legacy", "2025-11-25"),
    rust("auto", "2026-07-28"),
    rust("2026-07-28", "2026-07-28"),
]
TRANSCRIPT_CLIENTS = [CLIENTS[5], CLIENTS[9]]


@dataclass
class Row:
    """What one client saw."""

    client: Client
    lines: list[dict[str, Any]]
    cells: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def judge(self) -> None:
        transcript = checks.Transcript(self.lines)
        steps = [("connect", lambda t: checks.connect(t, self.client.revision)), *checks.STEPS]
        for name, check in steps:
            try:
                self.cells.append(check(transcript) or "pass")
            except (checks.Failed, KeyError, IndexError, TypeError, ValueError) as error:
                self.cells.append("FAIL")
                self.failures.append(f"{label(self.client)}: {name}: {error}")


def label(client: Client) -> str:
    mode = f" ({client.mode})" if client.mode else ""
    return f"{client.name} {client.version}{mode}"


def command(client: Client, runtimes: dict[str, str], folder: Path) -> list[str]:
    """How the client's driver is started. `runtimes` names interpreters and folders of packages."""
    runtime = runtimes[client.runtime]
    mode = [client.mode] if client.mode else []
    if client.driver == "rmcp-client":
        return [runtime, *mode]
    if client.driver == "inspector.py":
        program = f"{runtime}/node_modules/.bin/mcp-inspector"
        return [sys.executable, str(HERE / client.driver), runtimes["node"], program, *mode]
    if client.driver.endswith(".py"):
        return [runtime, str(HERE / "python" / client.driver), *mode]
    # Node.js looks for packages beside the file that imports them.
    drivers = folder / client.runtime
    if not drivers.exists():
        shutil.copytree(HERE / "typescript", drivers)
        (drivers / "node_modules").symlink_to(Path(runtime) / "node_modules")
    return [runtimes["node"], str(drivers / client.driver), *mode]


def run_client(client: Client, runtimes: dict[str, str], sessions: list, folder: Path) -> Row:
    row = Row(client, [])
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    try:
        run = subprocess.run(
            command(client, runtimes, folder),
            input=json.dumps(sessions),
            env=environment,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_SECONDS,
        )
        row.lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        if not row.lines:
            row.failures.append(f"{label(client)}: {run.stderr.strip()[-600:]}")
    except subprocess.TimeoutExpired:
        row.failures.append(f"{label(client)}: did not end by itself")
    row.judge()
    return row


def table(rows: list[Row]) -> str:
    names = ["client", "version", "mode", "revision", "connect", *(n for n, _ in checks.STEPS)]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for row in rows:
        client = row.client
        connected = [x["result"] for x in row.lines if x["do"] == "connect"]
        revision = connected[0].get("protocolVersion") if connected else None
        cells = [client.name, client.version, client.mode or "-", revision or "none", *row.cells]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_document(path: Path, rows: list[Row]) -> None:
    """Puts the table between the marks in the document."""
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(TABLE_BEGINS)
    _, after = rest.split(TABLE_ENDS)
    result = f"Run on {date.today().isoformat()}:\n\n{table(rows)}"
    path.write_text(f"{before}{TABLE_BEGINS}\n{result}\n{TABLE_ENDS}{after}", encoding="utf-8")


def print_transcript(row: Row) -> None:
    """What the client saw, for people."""
    transcript = checks.Transcript(row.lines)
    hello = transcript.hello()
    print(f"\n== {label(row.client)}, revision {hello['protocolVersion']}")
    tools = [tool["name"] for tool in transcript.result(0, "list_tools")["tools"]]
    print(f"tools: {', '.join(tools)}")
    for call, query in enumerate([checks.RETRIEVE_ENGLISH, checks.RETRIEVE_CHINESE]):
        print(f"\nretrieve  {query}")
        for item in transcript.structured(call)["items"][:3]:
            metadata = item["metadata"]
            print(f"  {item['rank']}. {metadata['title']} ({metadata['filename']})")
            # The first two lines are the fence around untrusted text, the last one closes it.
            print(f"     {' '.join(item['content'].splitlines()[2:-1])[:200]}")
    for call, question in enumerate([checks.ASK_ENGLISH, checks.ASK_CHINESE], start=2):
        answer = transcript.structured(call)
        print(f"\nask  {question}\n  {answer['answer']}")
        for source in answer["sources"]:
            print(f"  - {source['title']} ({source['filename']})")
    error = transcript.outcome(1, "call_tool")["error"]
    print(f"\nask, with a key that does not allow it\n  {error['code']} {error['message']}")
    error = transcript.outcome(2, "session")["error"]
    print(f"connect, with an unknown key\n  {error['type']}: {error['message'].splitlines()[0]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/clients/run")
    parser.add_argument("--quick", action="store_true", help="only the newest client libraries")
    parser.add_argument("--transcript", action="store_true", help="show what two clients saw")
    parser.add_argument("--write", metavar="FILE", type=Path, help="put the table into FILE")
    parser.add_argument("--list-runtimes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--runtimes", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    clients = [client for client in CLIENTS if client.quick or not options.quick]
    if options.transcript:
        clients = TRANSCRIPT_CLIENTS
    if options.list_runtimes:
        print("\n".join(dict.fromkeys(client.runtime for client in clients)))
        return 0

    runtimes = dict(x.split("=", 1) for x in options.runtimes.read_text().splitlines())
    keys = (os.environ[x] for x in ("RAGLAN_KEY", "RAGLAN_LIMITED_KEY", "RAGLAN_UNKNOWN_KEY"))
    sessions = checks.sessions(os.environ["RAGLAN_URL"], *keys)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for client in clients:
            rows.append(run_client(client, runtimes, sessions, Path(folder)))
            print(f"{label(client)}: {'FAILED' if rows[-1].failures else 'ok'}", file=sys.stderr)

    failures = [failure for row in rows for failure in row.failures]
    if options.transcript and not failures:
        for row in rows:
            print_transcript(row)
    else:
        print(table(rows))
    if options.write:
        write_document(options.write, rows)
    for failure in failures:
        print(f"FAILED {failure}")
    failed = sum(bool(row.failures) for row in rows)
    print(f"clients: {len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
