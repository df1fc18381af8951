"""Runs the MCP function beside other Lambda functions, through one emulator of the Lambda Runtime API, and
prints what each of them costs.

    measure.py --peers DIR --bootstrap MCP --env-file FILE [--quick] [--only NAME,...] [--json FILE]

DIR is a folder prepared by the peers' setup.sh (it holds the emulator, too); FILE is what
`raglan dev --emulators-only --env-file` writes. Systems take turns, so that a busy moment of the machine
hits all of them. Figures are min/median/max over the rounds; ratios compare medians of one run.
"""

import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER_KEY = "mk_test_0123456789abcdef"


def read_environment(path):
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def message(method, params=None, key=None, version="2025-06-18"):
    """A function-URL event around one JSON-RPC message."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        body["params"] = params
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {key}",
    }
    if method != "initialize":
        headers["mcp-protocol-version"] = version
    return {"headers": headers, "body": body}


def events_of(key, kb_id=None):
    """What is measured: name → (event, status that the answer must have)."""
    client = {"name": "measure", "version": "1"}
    handshake = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    arguments = {"query": "How long can the old key stay valid after a rotation?", "top_k": 3}
    events = {
        "initialize": (message("initialize", handshake, key), 200),
        "tools/list": (message("tools/list", None, key), 200),
        "retrieve": (message("tools/call", {"name": "retrieve", "arguments": arguments}, key), 200),
    }
    if kb_id:
        forbidden = {"name": "retrieve", "arguments": {**arguments, "kb_id": kb_id}}
        events["refusal"] = (message("tools/call", forbidden, key), 200)
        # A key of the right shape that nobody has.
        events["bad key"] = (message("tools/list", None, unknown_key()), 401)
    return events


def unknown_key():
    """`rgl_` + 43 base62 characters + the base62 CRC-32 of them, as docs/keys.md describes."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text = "rgl_" + "A" * 43
    number, checksum = zlib.crc32(text.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        checksum = digits[digit] + checksum
    return text + checksum


class System:
    """One program in the comparison."""

    def __init__(self, name, command, environment, events, folder=None):
        self.name, self.command, self.environment = name, command, environment
        self.events, self.folder = events, folder
        self.init_ms, self.init_cpu_ms, self.first_ms, self.first_cpu_ms = [], [], [], []
        self.peak_kib = []
        self.calls = {name: {"p50": [], "p99": [], "cpu_us": []} for name in events}

    def emulator(self, emulator):
        return emulator.Emu(self.command, env=self.environment, cwd=self.folder)

    def cold(self, emulator, last):
        """One cold start and the first call, which is the `last` kind of event."""
        running = self.emulator(emulator).start()
        try:
            init_cpu = running.cpu_s() * 1e3
            answer = running.invoke(encode(emulator, self.events[last][0]))
            self.init_ms.append(running.init_ms)
            self.init_cpu_ms.append(init_cpu)
            self.first_ms.append(answer.ms)
            self.first_cpu_ms.append(running.cpu_s() * 1e3)
        finally:
            running.stop()

    def warm(self, emulator, count):
        """`count` calls of each kind on one instance."""
        running = self.emulator(emulator).start()
        try:
            for name, (event, status) in self.events.items():
                encoded = encode(emulator, event)
                for _ in range(50):
                    check(self.name, name, running.invoke(encoded), status)
                before, times = running.cpu_s(), []
                for _ in range(count):
                    answer = running.invoke(encoded)
                    times.append(answer.ms)
                used = running.cpu_s() - before
                check(self.name, name, answer, status)
                figures = self.calls[name]
                figures["p50"].append(emulator.pct(times, 50))
                figures["p99"].append(emulator.pct(times, 99))
                figures["cpu_us"].append(used / count * 1e6)
            self.peak_kib.append(running.rss_peak_kb())
        finally:
            running.stop()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def encode(emulator, event):
    return json.dumps(emulator.furl_event(**event), ensure_ascii=False).encode()


def check(system, name, answer, status):
    got, _, body, note = answer.http()
    if got != status:
        sys.exit(f"{system}: {name} was answered with {got} instead of {status}: {body[:300]} {note}")


def spread(values, digits):
    if not values:
        return "-"
    shown = (min(values), statistics.median(values), max(values))
    return "/".join(f"{value:.{digits}f}" for value in shown)


def systems(peers, arguments, environment, ours_url, ours_slow_url, stub_url):
    """The programs of the comparison, the floor first."""
    work = peers / "work"
    runtime = (
        "import sys; sys.argv=['bootstrap','app.handler']; "
        "from awslambdaric.__main__ import main; main(['bootstrap','app.handler'])"
    )
    peer_events = events_of(PEER_KEY)
    stub = {"DDB_ENDPOINT": stub_url, "TABLE": "keys"}

    def python(name, interpreter, folder):
        environment = {**stub, "PYTHONPATH": str(peers / folder)}
        command = [str(work / interpreter / "bin/python"), "-c", runtime]
        return System(name, command, environment, peer_events, str(peers / folder))

    def node(name, folder):
        environment = {**stub, "NODE_ENV": "production"}
        command = ["node", str(peers / folder / "bootstrap.mjs")]
        return System(name, command, environment, peer_events, str(peers / folder))

    def rust(name, folder):
        command = [str(work / folder / "target/release/bootstrap")]
        return System(name, command, {}, peer_events)

    key = environment.pop("RAGLAN_KEY")
    ours = {**environment, "AWS_ENDPOINT_URL": ours_url, "LOG_LEVEL": "error"}
    ours |= {"RATE_LIMIT_PER_MINUTE": "60000", "RATE_LIMIT_BURST": "10000", "DAILY_QUOTAS": "none"}
    ours |= {"AUTH_FAILURES_PER_MINUTE": "0"}
    for name in [name for name in ours if name.startswith("AWS_ENDPOINT_URL_")]:
        del ours[name]
    our_events = events_of(key, "not-mine")
    command = [str(Path(arguments.bootstrap).resolve())]
    slow = {**ours, "AWS_ENDPOINT_URL": ours_slow_url}
    last = {"retrieve": our_events["retrieve"]}
    return [
        rust("echo (lambda_http)", "rust-echo"),
        System("raglan", command, ours, our_events),
        System("raglan, 50 ms connections", command, slow, last),
        rust("rmcp + lambda_http, no store", "rust-rmcp"),
        python("awslabs mcp_lambda_handler", "py1", "awslabs"),
        python("Python SDK + Mangum", "py2", "mangum"),
        node("TypeScript SDK v1", "node"),
        node("TypeScript SDK v2", "node2"),
    ]


def table(measured):
    print("| system | init ms | init CPU ms | first call ms | init + first CPU ms | peak MiB |")
    print("|---|---|---|---|---|---|")
    for system in measured:
        row = [system.name, spread(system.init_ms, 1), spread(system.init_cpu_ms, 1)]
        row += [spread(system.first_ms, 2), spread(system.first_cpu_ms, 1)]
        row += [spread([kib / 1024 for kib in system.peak_kib], 1)]
        print("| " + " | ".join(row) + " |")
    print("\n| system | call | p50 ms | p99 ms | CPU µs | CPU, times the echo |")
    print("|---|---|---|---|---|---|")
    floor = None
    for system in measured:
        for name, figures in system.calls.items():
            if not figures["cpu_us"]:
                continue
            median = statistics.median(figures["cpu_us"])
            if system is measured[0]:
                floor = min(floor or median, median)
            row = [system.name, name, spread(figures["p50"], 3), spread(figures["p99"], 2)]
            row += [spread(figures["cpu_us"], 0), f"{median / floor:.1f}" if floor else "-"]
            print("| " + " | ".join(row) + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--env-file", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="names, separated by commas; the echo is always there")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.peers))
    import lambda_emu as emulator

    environment = read_environment(arguments.env_file)
    ports = [free_port() for _ in range(3)]
    dynamodb, sqs = environment["AWS_ENDPOINT_URL_DYNAMODB"], environment["AWS_ENDPOINT_URL_SQS"]
    replay = [sys.executable, str(HERE / "replay.py")]
    digest = hashlib.sha256(PEER_KEY.encode()).hexdigest()
    stub = [sys.executable, str(arguments.peers / "ddb_stub.py"), str(ports[2]), digest]
    stand_ins = [
        subprocess.Popen([*replay, str(ports[0]), dynamodb, sqs]),
        subprocess.Popen([*replay, str(ports[1]), dynamodb, sqs, "--connect-delay-ms", "50"]),
        subprocess.Popen(stub),
    ]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    rounds, colds, count = (3, 3, 200) if arguments.quick else (5, 4, 1000)
    try:
        time.sleep(0.5)
        chosen = systems(arguments.peers, arguments, environment, *urls)
        if arguments.only:
            wanted = arguments.only.split(",")
            chosen = chosen[:1] + [s for s in chosen[1:] if any(w in s.name for w in wanted)]
        for round_number in range(rounds):
            for system in chosen:
                for _ in range(colds):
                    system.cold(emulator, "retrieve")
                if len(system.events) > 1:
                    system.warm(emulator, count)
            print(f"round {round_number + 1} of {rounds} done, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        table(chosen)
        if arguments.json:
            kept = [{k: v for k, v in vars(s).items() if k not in ("environment", "events")} for s in chosen]
            arguments.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    finally:
        for process in stand_ins:
            process.kill()


if __name__ == "__main__":
    main()
