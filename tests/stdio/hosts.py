"""Lets every host start `raglan stdio`, and judges what the hosts saw and what raglan wrote.
Started by `run`: hosts.py RAGLAN RUNTIMES FOLDER"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CLIENTS = HERE.parent / "clients"
sys.path.insert(0, str(CLIENTS))
import checks  # noqa: E402

HOST_TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class Host:
    """One row. `runtime` names the environment that `run` has installed."""

    name: str
    mode: str
    revision: str
    runtime: str
    driver: str


HOSTS = [
    Host("Python mcp 1.30.0", "", "2025-11-25", "python-1.30.0", "host_v1.py"),
    Host("Python mcp 2.3.0", "legacy", "2025-11-25", "python-2.3.0", "host_v2.py"),
    Host("Python mcp 2.3.0", "auto", "2026-07-28", "python-2.3.0", "host_v2.py"),
    Host("Python mcp 2.3.0", "2026-07-28", "2026-07-28", "python-2.3.0", "host_v2.py"),
    Host("TypeScript sdk 1.32.2", "", "2025-11-25", "sdk-1.32.2", "host_v1.mjs"),
    Host("TypeScript client 2.4.0", "legacy", "2025-11-25", "client-2.4.0", "host_v2.mjs"),
    Host("TypeScript client 2.4.0", "auto", "2026-07-28", "client-2.4.0", "host_v2.mjs"),
    Host("TypeScript client 2.4.0", "2026-07-28", "2026-07-28", "client-2.4.0", "host_v2.mjs"),
]


@dataclass
class Row:
    """What one host saw."""

    host: Host
    cells: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def judge(self, name: str, check: Any) -> None:
        try:
            self.cells.append(check() or "pass")
        except (checks.Failed, KeyError, IndexError, TypeError, ValueError, OSError) as error:
            self.cells.append("FAIL")
            self.failures.append(f"{self.host.name} {self.host.mode}: {name}: {error}")


def sessions(raglan: str, folder: Path) -> list[dict[str, Any]]:
    """The three sessions of the client matrix: a local system of its own, which the host's first call
    starts; a limited key and an unknown key at the endpoint of a system that runs."""
    url = os.environ["RAGLAN_URL"]
    limited = os.environ["RAGLAN_LIMITED_KEY"]
    operations = [x["operations"] for x in checks.sessions(url, "", limited, "")]
    ways = [
        (["--state-dir", str(folder / "state")], {}),
        (["--url", url], {"RAGLAN_KEY": limited}),
        (["--url", url], {"RAGLAN_KEY": "mk_nobody_has_this_key"}),
    ]
    return [
        {
            "command": [str(HERE / "tap"), str(folder / str(number)), raglan, "stdio", *options],
            "environment": environment,
            "operations": operations[number],
        }
        for number, (options, environment) in enumerate(ways)
    ]


def command(host: Host, runtimes: dict[str, str], folder: Path) -> list[str]:
    runtime = runtimes[host.runtime]
    mode = [host.mode] if host.mode else []
    if host.driver.endswith(".py"):
        return [runtime, str(HERE / "python" / host.driver), *mode]
    # Node.js looks for packages beside the file that imports them.
    shutil.copytree(HERE / "typescript", folder / "drivers")
    shutil.copy(CLIENTS / "typescript" / "sessions.mjs", folder / "drivers")
    (folder / "drivers" / "node_modules").symlink_to(Path(runtime) / "node_modules")
    return [runtimes["node"], str(folder / "drivers" / host.driver), *mode]


def protocol_only(folder: Path) -> None:
    """Standard output carried JSON-RPC messages, one a line, and nothing else."""
    for number in range(3):
        lines = (folder / f"{number}.out").read_text(encoding="utf-8").splitlines()
        checks.require(bool(lines), f"session {number}: nothing was written")
        for line in lines:
            message = json.loads(line)
            checks.require(
                message.get("jsonrpc") == "2.0" and ("id" in message or "method" in message),
                f"session {number}: no message: {line[:200]}",
            )


def ended_by_itself(folder: Path) -> None:
    for number in range(3):
        status = (folder / f"{number}.status").read_text().strip()
        checks.require(status == "0", f"session {number}: exit status {status}")


def run_host(host: Host, raglan: str, runtimes: dict[str, str], folder: Path) -> Row:
    row = Row(host)
    folder.mkdir()
    run = subprocess.run(
        command(host, runtimes, folder),
        input=json.dumps(sessions(raglan, folder)),
        env={**os.environ, "PYTHONPATH": str(CLIENTS / "python"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=HOST_TIMEOUT_SECONDS,
    )
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        row.failures.append(f"{host.name} {host.mode}: {run.stderr.strip()[-600:]}")
    transcript = checks.Transcript(lines)
    row.judge("connect", lambda: checks.connect(transcript, host.revision))
    for name, check in checks.STEPS:
        row.judge(name, lambda check=check: check(transcript))
    row.judge("only protocol", lambda: protocol_only(folder))
    row.judge("ends", lambda: ended_by_itself(folder))
    return row


def main(raglan: str, runtimes_file: str, folder: str) -> int:
    runtimes = dict(x.split("=", 1) for x in Path(runtimes_file).read_text().splitlines())
    rows = []
    for number, host in enumerate(HOSTS):
        rows.append(run_host(host, raglan, runtimes, Path(folder) / f"host-{number}"))
        outcome = "FAILED" if rows[-1].failures else "ok"
        print(f"{host.name} {host.mode}: {outcome}", file=sys.stderr)
    steps = [name for name, _ in checks.STEPS]
    names = ["host", "mode", "revision", "connect", *steps, "only protocol", "ends"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        host = row.host
        print(f"| {' | '.join([host.name, host.mode or '-', host.revision, *row.cells])} |")
    failures = [failure for row in rows for failure in row.failures]
    for failure in failures:
        print(f"FAILED {failure}")
    failed = sum(bool(row.failures) for row in rows)
    print(f"hosts: {len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
