"""The Lambda Runtime API emulator of the peers, with the Extensions API beside it, so that the function
defers its audit events as it does on Lambda.

As on Lambda, the instance takes its next event only when the runtime and the extension have both asked for
it; what the extension does after an answer is part of the CPU time and no part of the latency.
"""

import json
import time
import uuid

import lambda_emu

EXTENSION_ID = "00000000-0000-4000-8000-000000000001"


def http_answer(status, body, headers=()):
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


class Runtime(lambda_emu.Emu):
    """One execution environment."""

    has_extension = False
    idle_extension = None

    def _parse(self, connection):
        end = connection.buf.find(b"\r\n\r\n")
        if end < 0 or b"/2020-01-01/extension/" not in connection.buf[: connection.buf.find(b"\r\n")]:
            return super()._parse(connection)
        head = bytes(connection.buf[:end]).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:])
        whole = end + 4 + int(headers.get("content-length", 0))
        if len(connection.buf) < whole:
            return False
        del connection.buf[:whole]
        if "/register" in head[0]:
            self.has_extension = True
            about = {"functionName": self.fn, "functionVersion": "$LATEST", "handler": self.handler}
            identity = (f"Lambda-Extension-Identifier: {EXTENSION_ID}",)
            connection.s.sendall(http_answer("200 OK", json.dumps(about).encode(), identity))
        else:
            self.idle_extension = connection
        return bool(connection.buf)

    def settle(self):
        """Waits until the instance could be frozen."""
        idle = lambda: self.waiting and (self.idle_extension or not self.has_extension)
        self._until(idle, "next poll")

    def invoke(self, event, timeout=None):
        """Sends one event, as bytes, to runtime and extension, and times the runtime's answer."""
        self.settle()
        request_id = str(uuid.uuid4())
        deadline_ms = int((time.time() + self.timeout) * 1000)
        arn = f"arn:aws:lambda:us-east-1:123456789012:function:{self.fn}"
        trace = "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=0"
        to_runtime = http_answer(
            "200 OK",
            event,
            (
                f"Lambda-Runtime-Aws-Request-Id: {request_id}",
                f"Lambda-Runtime-Deadline-Ms: {deadline_ms}",
                f"Lambda-Runtime-Invoked-Function-Arn: {arn}",
                f"Lambda-Runtime-Trace-Id: {trace}",
            ),
        )
        if self.has_extension:
            told = {
                "eventType": "INVOKE",
                "deadlineMs": deadline_ms,
                "requestId": request_id,
                "invokedFunctionArn": arn,
                "tracing": {"type": "X-Amzn-Trace-Id", "value": trace},
            }
            extension, self.idle_extension = self.idle_extension, None
            extension.s.sendall(http_answer("200 OK", json.dumps(told).encode()))
        connection, self.waiting = self.waiting, None
        self.seen.clear()
        began = time.perf_counter_ns()
        connection.s.sendall(to_runtime)
        self._until(lambda: self.seen, f"answer to {request_id}", timeout)
        answer = self.seen.pop()
        answer.ms = (answer.ms - began) / 1e6
        if answer.request_id != request_id:
            raise RuntimeError("the answer carries another request id")
        return answer
