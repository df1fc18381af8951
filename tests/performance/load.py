"""Runs `raglan bench` against two servers in turns. See `load`."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from measure import machine

CONNECTIONS = "1,10,50,100"
QUERY = "How long can the old key stay valid after a rotation?"
SOAK_CONNECTIONS = 10
SAMPLE_SECONDS = 5


def bench(raglan, url, key, seconds, call="retrieve", connections=CONNECTIONS):
    command = [raglan, "bench", url, "--connections", connections, "--seconds", str(seconds)]
    command += ["--call", call, "--query", QUERY, "--json"]
    environment = {**os.environ, "RAGLAN_KEY": key}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        measured = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"load: {' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return measured


def resident_kib(pid):
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def soak(arguments):
    """The memory of the process under a steady load: (seconds, KiB) pairs."""
    began, samples, ended = time.monotonic(), [], threading.Event()

    def watch():
        while not ended.wait(SAMPLE_SECONDS):
            samples.append([round(time.monotonic() - began), resident_kib(arguments.pid)])

    watcher = threading.Thread(target=watch)
    watcher.start()
    seconds = max(int(arguments.soak * 60), 1)
    measured = bench(arguments.raglan, arguments.url, arguments.key, seconds, connections=str(SOAK_CONNECTIONS))
    ended.set()
    watcher.join()
    return {"minutes": arguments.soak, "load": measured, "resident_kib": samples}


def main():
    parser = argparse.ArgumentParser()
    for name in ("raglan", "url", "key", "peer-url", "peer-key"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--soak", type=float, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measured = {"machine": {**machine(), "load_before": os.getloadavg()[0]}}
    for name, url, key, call in [
        ("raglan dev, retrieve", arguments.url, arguments.key, "retrieve"),
        ("raglan dev, tools/list", arguments.url, arguments.key, "list"),
        ("Python SDK, retrieve", arguments.peer_url, arguments.peer_key, "retrieve"),
        ("Python SDK, tools/list", arguments.peer_url, arguments.peer_key, "list"),
    ]:
        measured[name] = bench(arguments.raglan, url, key, arguments.seconds, call)
        print(name, json.dumps(measured[name], ensure_ascii=False))
    if arguments.soak:
        measured["soak"] = soak(arguments)
        kept = measured["soak"]["resident_kib"]
        print("soak", json.dumps(measured["soak"]["load"]), "first and last KiB", kept[:1], kept[-1:])
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
