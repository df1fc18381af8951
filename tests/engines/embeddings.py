"""An embedding model for tests, behind OpenAI's `/v1/embeddings`: words and Chinese characters, hashed into
a vector. Texts that share words are near each other, and nothing has to be downloaded.

    embeddings.py PORT
"""

import base64
import http.server
import json
import math
import re
import struct
import sys
import zlib

DIMENSIONS = 256
MODEL = "words"


def embed(text):
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"[a-z0-9]+|[一-鿿]", text.lower()):
        vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        texts = request["input"] if isinstance(request["input"], list) else [request["input"]]
        data = []
        for index, text in enumerate(texts):
            vector = embed(text)
            if request.get("encoding_format") == "base64":
                vector = base64.b64encode(struct.pack(f"{DIMENSIONS}f", *vector)).decode()
            data.append({"object": "embedding", "index": index, "embedding": vector})
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        self.answer({"object": "list", "model": MODEL, "data": data, "usage": usage})

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
