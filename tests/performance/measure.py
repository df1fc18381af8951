"""Runs the MCP function beside other Lambda functions, through one emulator of the Lambda Runtime API, and
prints what each of them costs.

    measure.py --peers DIR --bootstrap MCP --env-file FILE [--quick] [--only NAME,...] [--json FILE]

DIR is a folder prepared by the peers' setup.sh (it holds the emulator, too); FILE is what
`raglan dev --emulators-only --env-file` writes. Systems take turns, so that a busy moment of the machine
hits all of them. Figures are min/median/max over the rounds; ratios compare medians of one run.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

from stand_ins import PEER_KEY, StandIns, read_environment, unknown_key

WARM_UP_CALLS = 50
# An index of 10,000 passages; `run` has it built.
KNOWLEDGE_BASE = "passages-10000"


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


def tool_call(key, name, **arguments):
    return message("tools/call", {"name": name, "arguments": arguments}, key)


def events_of(key, ours=False):
    """What is measured: name → (event, status that the answer must have)."""
    client = {"name": "measure", "version": "1"}
    handshake = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    question = {"query": "How long can the old key stay valid after a rotation?", "top_k": 3}
    where = {"kb_id": KNOWLEDGE_BASE} if ours else {}
    events = {
        "initialize": (message("initialize", handshake, key), 200),
        "tools/list": (message("tools/list", None, key), 200),
        "retrieve": (tool_call(key, "retrieve", **question, **where), 200),
    }
    if ours:
        events["refusal"] = (tool_call(key, "retrieve", **question, kb_id="not-mine"), 200)
        # A key of the right shape that nobody has.
        events["bad key"] = (message("tools/list", None, unknown_key()), 401)
    return events


class System:
    """One program in the comparison."""

    def __init__(self, name, command, environment, events, folder=None):
        self.name, self.command, self.environment = name, command, environment
        self.events, self.folder = events, folder
        self.figures = {"init_ms": [], "init_cpu_ms": [], "first_ms": [], "first_cpu_ms": [], "peak_kib": []}
        self.calls = {name: {"p50_ms": [], "p99_ms": [], "cpu_us": []} for name in events}

    def start(self):
        from runtime import Runtime

        return Runtime(self.command, env=self.environment, cwd=self.folder).start()

    def cold(self, last="retrieve"):
        """One cold start and the first call, which is the `last` kind of event."""
        running = self.start()
        try:
            self.figures["init_ms"].append(running.init_ms)
            self.figures["init_cpu_ms"].append(running.cpu_s() * 1e3)
            event, status = self.events[last]
            answer = running.invoke(encode(event))
            running.settle()
            check(self.name, last, answer, status)
            self.figures["first_ms"].append(answer.ms)
            self.figures["first_cpu_ms"].append(running.cpu_s() * 1e3)
        finally:
            running.stop()

    def warm(self, count):
        """`count` calls of each kind on one instance."""
        from lambda_emu import pct

        running = self.start()
        try:
            for name, (event, status) in self.events.items():
                encoded = encode(event)
                for _ in range(WARM_UP_CALLS):
                    check(self.name, name, running.invoke(encoded), status)
                running.settle()
                before, times = running.cpu_s(), []
                for _ in range(count):
                    answer = running.invoke(encoded)
                    times.append(answer.ms)
                running.settle()
                used = running.cpu_s() - before
                check(self.name, name, answer, status)
                figures = self.calls[name]
                figures["p50_ms"].append(pct(times, 50))
                figures["p99_ms"].append(pct(times, 99))
                figures["cpu_us"].append(used / count * 1e6)
            self.figures["peak_kib"].append(running.rss_peak_kb())
        finally:
            running.stop()


def encode(event):
    from lambda_emu import furl_event

    return json.dumps(furl_event(**event), ensure_ascii=False).encode()


def check(system, name, answer, status):
    got, _, body, note = answer.http()
    if got != status:
        sys.exit(f"{system}: {name} was answered with {got} instead of {status}: {body[:300]} {note}")
    # A search that is refused would be a cheap one.
    if name in ("retrieve", "call") and ('"error":' in body or '"isError":true' in body):
        sys.exit(f"{system}: {name} failed: {body[:300]}")


def spread(values, digits):
    if not values:
        return "-"
    shown = (min(values), statistics.median(values), max(values))
    return "/".join(f"{value:.{digits}f}" for value in shown)


def our_environment(environment, url, **variables):
    """The function's own, with limits that are counted and never reached."""
    ours = {
        name: value
        for name, value in environment.items()
        if name != "RAGLAN_KEY" and not name.startswith("AWS_ENDPOINT_URL_")
    }
    limits = {"RATE_LIMIT_PER_MINUTE": "60000", "RATE_LIMIT_BURST": "10000", "DAILY_QUOTAS": "none"}
    # Metrics and the log are what a deployment writes.
    written = {"METRICS_ENABLED": "true", "LOG_LEVEL": "info"}
    own = {"AWS_ENDPOINT_URL": url, "AUTH_FAILURES_PER_MINUTE": "0"}
    return {**ours, **limits, **written, **own, **variables}


def systems(peers, bootstrap, environment, stand_ins):
    """The programs of the comparison, the floor first."""
    work = peers / "work"
    runtime = (
        "import sys; sys.argv=['bootstrap','app.handler']; "
        "from awslambdaric.__main__ import main; main(['bootstrap','app.handler'])"
    )
    peer_events = events_of(PEER_KEY)
    stub = {"DDB_ENDPOINT": stand_ins.peers_url, "TABLE": "keys"}

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

    key = environment["RAGLAN_KEY"]
    events = events_of(key, ours=True)
    only_cold = {"retrieve": events["retrieve"]}

    def ours(name, url, events, **variables):
        return System(name, [bootstrap], our_environment(environment, url, **variables), events)

    return [
        rust("echo (lambda_http)", "rust-echo"),
        ours("raglan", stand_ins.url, events),
        ours("raglan, WARM_UP=false", stand_ins.url, only_cold, WARM_UP="false"),
        ours("raglan, 50 ms connections", stand_ins.slow_url, only_cold),
        ours("raglan, 50 ms connections, WARM_UP=false", stand_ins.slow_url, only_cold, WARM_UP="false"),
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
        kept = system.figures
        row = [system.name, spread(kept["init_ms"], 1), spread(kept["init_cpu_ms"], 1)]
        row += [spread(kept["first_ms"], 2), spread(kept["first_cpu_ms"], 1)]
        row += [spread([kib / 1024 for kib in kept["peak_kib"]], 1)]
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
            row = [system.name, name, spread(figures["p50_ms"], 3), spread(figures["p99_ms"], 2)]
            row += [spread(figures["cpu_us"], 0), f"{median / floor:.1f}" if floor else "-"]
            print("| " + " | ".join(row) + " |")


def machine():
    """What the figures were measured on."""
    described = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next((line.split(": ")[1] for line in described.splitlines() if line.startswith("model name")), "?")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "date": time.strftime("%Y-%m-%d"),
    }


def result(chosen, load, sizes):
    kept = [{"name": s.name, **s.figures, "calls": s.calls} for s in chosen]
    return {"machine": {**machine(), "load": load}, "sizes": sizes, "systems": kept}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--env-file", required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="parts of names, separated by commas; the echo is always there")
    parser.add_argument("--size-bytes", type=int, default=0, help="of the stripped program")
    parser.add_argument("--zip-bytes", type=int, default=0, help="of its zip")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.peers))
    environment = read_environment(arguments.env_file)
    rounds, colds, count = (3, 3, 200) if arguments.quick else (5, 4, 1000)
    load = []
    with StandIns(environment, arguments.peers) as stand_ins:
        bootstrap = str(Path(arguments.bootstrap).resolve())
        chosen = systems(arguments.peers, bootstrap, environment, stand_ins)
        if arguments.only:
            wanted = arguments.only.split(",")
            chosen = chosen[:1] + [s for s in chosen[1:] if any(w in s.name for w in wanted)]
        for round_number in range(rounds):
            for system in chosen:
                for _ in range(colds):
                    system.cold()
                if len(system.events) > 1:
                    system.warm(count)
            load.append(round(os.getloadavg()[0], 2))
            print(f"round {round_number + 1} of {rounds} done, load {load[-1]}", file=sys.stderr)
    table(chosen)
    sizes = {"stripped_bytes": arguments.size_bytes, "zip_bytes": arguments.zip_bytes}
    if arguments.size_bytes:
        print(f"\nprogram {sizes['stripped_bytes'] / 1e6:.1f} MB stripped, {sizes['zip_bytes'] / 1e6:.1f} MB zipped")
    if arguments.json:
        text = json.dumps(result(chosen, load, sizes), indent=1, ensure_ascii=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
