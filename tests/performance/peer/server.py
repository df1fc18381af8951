"""An MCP server with the official Python SDK that does for a call of `retrieve` what raglan does: finds the key by
its SHA-256, counts the call against a limit, looks up which knowledge bases the key may use, searches passages
in English and Chinese, and writes an audit event.

    server.py PORT DOCUMENTS DATABASE KEY

It stores all of that in one SQLite file in its own process, so it makes no network call where raglan makes four;
there is no guard and no access rule beyond the list of knowledge bases. Runs as two processes on one port.
"""

import contextvars
import hashlib
import json
import multiprocessing
import re
import socket
import sqlite3
import sys
import time
import uuid
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse

PROCESSES = 2
KEY_HASH = contextvars.ContextVar("key_hash")

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE keys (hash TEXT PRIMARY KEY, key_id TEXT, scope TEXT);
CREATE TABLE limits (hash TEXT, minute INTEGER, calls INTEGER, PRIMARY KEY (hash, minute));
CREATE TABLE knowledge_bases (id TEXT PRIMARY KEY, name TEXT);
CREATE TABLE audit (id TEXT PRIMARY KEY, at REAL, key_id TEXT, tool TEXT, parameters TEXT);
CREATE VIRTUAL TABLE passages USING fts5 (kb_id UNINDEXED, title, content, tokenize = 'trigram');
"""


def connect(database):
    connection = sqlite3.connect(database, isolation_level=None, timeout=10)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def prepare(database, documents, key):
    connection = connect(database)
    connection.executescript(SCHEMA)
    digest = hashlib.sha256(key.encode()).hexdigest()
    connection.execute("INSERT INTO keys VALUES (?, 'key-1', 'handbook')", [digest])
    connection.execute("INSERT INTO knowledge_bases VALUES ('handbook', 'Handbook')")
    for path in sorted(Path(documents).rglob("*.md")):
        for content in re.split(r"\n(?=#)", path.read_text(encoding="utf-8")):
            connection.execute("INSERT INTO passages VALUES ('handbook', ?, ?)", [path.name, content])
    connection.close()


def search_terms(query):
    """The query's words as an FTS5 expression; the trigram tokenizer needs three characters."""
    words = re.findall(r"[A-Za-z]{3,}|[\u4e00-\u9fff]{3,}", query)
    return " OR ".join(f'"{word}"' for word in words) or '"nothing"'


def build(database):
    store = connect(database)
    server = MCPServer("peer")

    @server.tool()
    async def retrieve(query: str, top_k: int = 5) -> dict:
        """Finds the passages that fit a query best, with their sources."""
        digest = KEY_HASH.get()
        minute = int(time.time() // 60)
        store.execute(
            "INSERT INTO limits VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET calls = calls + 1", [digest, minute]
        )
        key_id, scope = store.execute("SELECT key_id, scope FROM keys WHERE hash = ?", [digest]).fetchone()
        kb_id, _ = store.execute("SELECT id, name FROM knowledge_bases WHERE id = ?", [scope]).fetchone()
        found = store.execute(
            "SELECT rowid, title, content, bm25(passages) FROM passages WHERE passages MATCH ? AND kb_id = ? ORDER BY 4 LIMIT ?",
            [search_terms(query), kb_id, top_k],
        ).fetchall()
        items = [
            {"id": str(row), "kb_id": kb_id, "rank": rank, "score": -score, "content": content, "metadata": {"title": title}}
            for rank, (row, title, content, score) in enumerate(found, 1)
        ]
        parameters = json.dumps({"query": query, "top_k": top_k})
        store.execute("INSERT INTO audit VALUES (?, ?, ?, 'retrieve', ?)", [str(uuid.uuid4()), time.time(), key_id, parameters])
        return {"status": "success", "items": items}

    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(transport_security=security, stateless_http=True, json_response=True)

    async def with_key(scope, receive, send):
        if scope["type"] == "http":
            header = dict(scope["headers"]).get(b"authorization", b"").decode()
            digest = hashlib.sha256(header.removeprefix("Bearer ").encode()).hexdigest()
            known = store.execute("SELECT 1 FROM keys WHERE hash = ?", [digest]).fetchone()
            if not known:
                return await JSONResponse({"error": "unauthorized"}, 401)(scope, receive, send)
            KEY_HASH.set(digest)
        await app(scope, receive, send)

    return with_key


def serve(listener, database):
    config = uvicorn.Config(build(database), log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    port, documents, database, key = sys.argv[1:]
    prepare(database, documents, key)
    # asyncio turns Nagle's algorithm off only where the protocol is named; otherwise every answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(256)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=serve, args=(listener, database), daemon=True) for _ in range(PROCESSES)]
    for child in children:
        child.start()
    print("ready", flush=True)
    for child in children:
        child.join()
