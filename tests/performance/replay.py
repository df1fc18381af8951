"""A stand-in for DynamoDB and SQS that answers from memory in some ten microseconds, so that a measurement
shows the cost of the function and not that of an emulator.

The first request of a kind is handed to the real emulator, and its answer is kept; later requests of the
kind get the kept answer. A kind is the operation, the table and the key that it is about. So the answers
are true ones, but frozen: what is written does not change what is read.

    replay.py PORT DYNAMODB_URL SQS_URL [--connect-delay-ms N]

`--connect-delay-ms` holds back the first answer on every connection, as a TLS handshake would.
"""

import argparse
import hashlib
import heapq
import http.client
import json
import select
import socket
import time
import urllib.parse

# What makes two requests of one operation different; everything else (values, conditions) is frozen.
DISTINGUISHING = ("TableName", "Key", "RequestItems", "IndexName", "ExpressionAttributeValues")


def kind_of(target, body):
    """The part of a request that the answer depends on."""
    if target.startswith("AmazonSQS"):
        return target
    request = json.loads(body)
    names = DISTINGUISHING if target.endswith(("GetItem", "Query")) else DISTINGUISHING[:2]
    kept = {name: request.get(name) for name in names}
    return target + hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def ask_emulator(url, headers, body):
    """The emulator's answer as raw HTTP."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.request("POST", parts.path or "/", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
    skipped = ("content-length", "transfer-encoding", "connection")
    lines += [f"{n}: {v}" for n, v in answer.getheaders() if n.lower() not in skipped]
    lines.append(f"content-length: {len(content)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


class Connection:
    """One client: what it has sent and not yet been answered."""

    def __init__(self, stream):
        self.stream, self.buffer, self.is_new = stream, b"", True

    def requests(self):
        """Takes the whole requests out of the buffer."""
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            headers = {}
            for line in self.buffer[:end].split(b"\r\n")[1:]:
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.strip().lower()] = value.strip()
            last = end + 4 + int(headers.get("content-length", 0))
            if len(self.buffer) < last:
                return
            body, self.buffer = self.buffer[end + 4 : last], self.buffer[last:]
            yield headers, body


def serve(port, dynamodb_url, sqs_url, connect_delay_seconds):
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections, kept = {}, {}
    # (when, tie-breaker, connection, answer): the delays of several connections run at the same time.
    held_back = []
    while True:
        patience = max(0, held_back[0][0] - time.monotonic()) if held_back else None
        ready = poll.poll(patience)
        while held_back and held_back[0][0] <= time.monotonic():
            _, _, stream, answer = heapq.heappop(held_back)
            send(stream, answer)
        for descriptor, _ in ready:
            if descriptor == listener.fileno():
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[stream.fileno()] = Connection(stream)
                poll.register(stream, select.EPOLLIN)
                continue
            connection = connections[descriptor]
            try:
                received = connection.stream.recv(65536)
            except ConnectionError:
                received = b""
            if not received:
                poll.unregister(descriptor)
                connections.pop(descriptor).stream.close()
                continue
            connection.buffer += received
            for headers, body in connection.requests():
                target = headers["x-amz-target"]
                kind = kind_of(target, body)
                answer = kept.get(kind)
                if not answer:
                    url = sqs_url if target.startswith("AmazonSQS") else dynamodb_url
                    answer = ask_emulator(url, headers, body)
                    # After a failed condition the client asks again, under another one.
                    if b"ConditionalCheckFailed" not in answer:
                        kept[kind] = answer
                if connection.is_new and connect_delay_seconds:
                    when = time.monotonic() + connect_delay_seconds
                    heapq.heappush(held_back, (when, descriptor, connection.stream, answer))
                else:
                    send(connection.stream, answer)
                connection.is_new = False


def send(stream, answer):
    try:
        stream.sendall(answer)
    except OSError:
        # The client has gone; reading from the connection will tell.
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("dynamodb_url")
    parser.add_argument("sqs_url")
    parser.add_argument("--connect-delay-ms", type=float, default=0)
    given = parser.parse_args()
    serve(given.port, given.dynamodb_url, given.sqs_url, given.connect_delay_ms / 1000)
