"""The emulated DynamoDB of a local system, without an AWS library. The emulator wants a signature's
shape and checks no signature."""

import json
import urllib.request
from datetime import UTC, datetime
from typing import Any


def read_variables(env_file: str) -> dict[str, str]:
    """The `NAME=value` lines that `raglan dev` writes."""
    with open(env_file, encoding="utf-8") as lines:
        return dict(line.rstrip("\n").split("=", 1) for line in lines if "=" in line)


def call(endpoint: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """One operation of the API, such as `PutItem`."""
    now = datetime.now(UTC)
    scope = f"local/{now:%Y%m%d}/us-east-1/dynamodb/aws4_request"
    signature = f"Credential={scope}, SignedHeaders=host, Signature=none"
    request = urllib.request.Request(
        endpoint,
        data=json.dumps(parameters).encode(),
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
            "X-Amz-Date": f"{now:%Y%m%dT%H%M%SZ}",
            "Authorization": f"AWS4-HMAC-SHA256 {signature}",
        },
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)
