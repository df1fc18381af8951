"""The AWS account of the test: MiniStack on a free loopback port, with its clients."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

REGION = "us-east-1"
START_PATIENCE_SECONDS = 60
STOP_PATIENCE_SECONDS = 10


class Account:
    """A running MiniStack."""

    def __init__(self, port: int, log: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.log = log
        # No file of the developer's machine may decide about credentials or endpoints.
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("AWS_")
        } | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SAM_CLI_TELEMETRY": "0",
            "NO_COLOR": "1",
        }

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def function_url(self, deployed: str) -> str:
        """Where MiniStack answers for a function URL: it knows the function by the first label."""
        host, _, path = deployed.removeprefix("https://").removeprefix("http://").partition("/")
        return f"{self.endpoint}/_aws/lambda-url/{host.split('.')[0]}/{path}"


@contextmanager
def running_account(scratch: Path) -> Iterator[Account]:
    """Starts MiniStack and ends it with everything that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    account = Account(port, scratch / "ministack.log")
    with open(account.log, "w", encoding="utf-8") as log:
        # A session of its own: MiniStack leaves the functions' processes behind when it ends.
        process = subprocess.Popen(
            [Path(sys.executable).parent / "ministack"],
            env=account.environment
            | {
                "GATEWAY_PORT": str(port),
                "BIND_HOST": "127.0.0.1",
                "TMPDIR": str(scratch),
                "S3_DATA_DIR": str(scratch / "s3"),
                # Servers on ports of their own, which nobody needs here.
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_for(account, process)
        yield account
    finally:
        end_session(process)


def wait_for(account: Account, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{account.endpoint}/_ministack/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    sys.exit(f"MiniStack did not start:\n{account.log.read_text()[-2000:]}")


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """Ends MiniStack, then what is left of its session, each process by its identifier."""
    process.terminate()
    try:
        process.wait(STOP_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for left in session_members(process.pid):
        try:
            os.kill(left, signal.SIGKILL)
        except ProcessLookupError:
            pass


def session_members(session: int) -> list[int]:
    """The processes of a session, from /proc (field 6 of `stat`; the name before may hold spaces)."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                members.append(int(entry.name))
    return members
