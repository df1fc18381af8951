"""What stands behind the measured functions: replayed DynamoDB and SQS for ours, the peers' own stub for them."""

import hashlib
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEER_KEY = "mk_test_0123456789abcdef"
SLOW_CONNECTION_MS = 50


def read_environment(path):
    """The variables of a file that `raglan dev --env-file` has written."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def unknown_key():
    """`rgl_` + 43 base62 characters + the base62 CRC-32 of them, as docs/keys.md describes."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    text = "rgl_" + "A" * 43
    number, checksum = zlib.crc32(text.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        checksum = digits[digit] + checksum
    return text + checksum


class StandIns:
    """Started when entered, stopped when left. `url` answers at once, `slow_url` takes its time for the
    first answer on each connection, `peers_url` is for the peers."""

    def __init__(self, environment, peers=None):
        services = [environment["AWS_ENDPOINT_URL_DYNAMODB"], environment["AWS_ENDPOINT_URL_SQS"]]
        replay = [sys.executable, str(HERE / "replay.py")]
        ports = [free_port() for _ in range(3)]
        self.url, self.slow_url, self.peers_url = (f"http://127.0.0.1:{port}" for port in ports)
        self.commands = [
            [*replay, str(ports[0]), *services],
            [*replay, str(ports[1]), *services, "--connect-delay-ms", str(SLOW_CONNECTION_MS)],
        ]
        if peers:
            digest = hashlib.sha256(PEER_KEY.encode()).hexdigest()
            self.commands.append([sys.executable, str(peers / "ddb_stub.py"), str(ports[2]), digest])
        self.processes = []

    def __enter__(self):
        self.processes = [subprocess.Popen(command) for command in self.commands]
        for url in (self.url, self.slow_url, self.peers_url)[: len(self.processes)]:
            wait_for_port(int(url.rsplit(":", 1)[1]))
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()


def wait_for_port(port, patience_seconds=30):
    end = time.monotonic() + patience_seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
