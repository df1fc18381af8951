"""What a host may do to `raglan stdio` beside talking to it well. Started by `run`:
lifetime.py RAGLAN FOLDER"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30


class Server:
    """A running `raglan stdio` in a state folder."""

    def __init__(self, raglan: str, state: Path) -> None:
        command = [raglan, "stdio", "--state-dir", str(state)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.watch = threading.Timer(PATIENCE_SECONDS, self.process.kill)
        self.watch.start()

    def send(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, number: int = 1) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method}).encode())
        return self.answer()

    def end(self) -> tuple[int, bytes]:
        """Closes the input; returns the exit status and what was still written."""
        rest, _ = self.process.communicate()
        self.watch.cancel()
        return self.process.returncode, rest


def odd_input(raglan: str, state: Path) -> None:
    """Lines that are no message are answered as that, and what follows is not disturbed."""
    server = Server(raglan, state)
    for line in (b"no json", b"\xff\xfe"):
        server.send(line)
        answer = server.answer()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700), answer
    for line in (b"", b"  \r", b'{"jsonrpc":"2.0","method":"notifications/initialized"}'):
        server.send(line)
    answer = server.ask("ping", 7)
    assert (answer["id"], answer["result"]) == (7, {}), answer
    assert server.end() == (0, b"")


def last_line_without_end(raglan: str, state: Path) -> None:
    """Every message that was read is answered before the program ends."""
    server = Server(raglan, state)
    server.ask("ping")
    assert server.process.stdin
    for number in range(20):
        server.process.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number)
    server.process.stdin.write(b'{"jsonrpc":"2.0","id":20,"method":"ping"}')
    status, rest = server.end()
    answered = sorted(json.loads(line)["id"] for line in rest.splitlines())
    assert (status, answered) == (0, list(range(21))), (status, answered)


def signals(raglan: str, state: Path) -> None:
    """SIGTERM and SIGINT end it in order, although the input is still open."""
    for number in (signal.SIGTERM, signal.SIGINT):
        server = Server(raglan, state)
        server.ask("ping")
        server.process.send_signal(number)
        status = server.process.wait()
        server.watch.cancel()
        assert status == 0, f"{number.name}: {status}"


def second_start(raglan: str, state: Path) -> None:
    """A server that starts while another one ends in the same folder waits for it."""
    first = Server(raglan, state)
    first.ask("ping")
    second = Server(raglan, state)
    threading.Timer(1, first.end).start()
    assert second.ask("ping")["result"] == {}
    assert second.end() == (0, b"")


def neighbour_that_stays(raglan: str, state: Path) -> None:
    """A server beside one that does not end says what to do, and does not wait for ever."""
    first = Server(raglan, state)
    first.ask("ping")
    second = subprocess.run(
        [raglan, "stdio", "--state-dir", str(state)],
        input=b"",
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (second.returncode, second.stdout) == (1, b""), second
    assert b"--state-dir" in second.stderr and b"raglan dev" in second.stderr, second.stderr
    assert first.ask("ping", 2)["result"] == {}
    assert first.end() == (0, b"")


def beside_raglan_dev(raglan: str, state: Path) -> None:
    """Servers in the folder of a running `raglan dev` are its guests, any number of them."""
    dev = subprocess.Popen(
        [raglan, "dev", "--port", "0", "--state-dir", str(state)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert dev.stdout
        while not dev.stdout.readline().startswith(b"Audit trail"):
            assert dev.poll() is None, "raglan dev ended"
        # Its later output is not looked at, but must not fill the pipe.
        threading.Thread(target=dev.stdout.read, daemon=True).start()
        guests = [Server(raglan, state) for _ in range(2)]
        for guest in guests:
            assert guest.ask("ping")["result"] == {}
            assert guest.end() == (0, b"")
    finally:
        dev.send_signal(signal.SIGINT)
        dev.wait()


CHECKS: list[Callable[[str, Path], None]] = [
    odd_input,
    last_line_without_end,
    signals,
    second_start,
    neighbour_that_stays,
    beside_raglan_dev,
]


def main(raglan: str, folder: str) -> int:
    failed = 0
    for number, check in enumerate(CHECKS):
        try:
            check(raglan, Path(folder) / f"lifetime-{number}")
            print(f"ok      {check.__name__.replace('_', ' ')}")
        except (AssertionError, KeyError, ValueError, OSError) as error:
            failed += 1
            print(f"FAILED  {check.__name__.replace('_', ' ')}: {error!r}")
    print(f"lifetime: {len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main(*sys.argv[1:]))
