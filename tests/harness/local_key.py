"""Stores a key with chosen tools in a local system's keys table and prints the key.

    python3 local_key.py ENV_FILE TOOL...

ENV_FILE is what `raglan dev` writes (`running.env`). The key sees every knowledge base."""

import hashlib
import secrets
import sys
from datetime import UTC, datetime

from local_dynamodb import call, read_variables


def main(env_file: str, tools: list[str]) -> None:
    variables = read_variables(env_file)
    key = f"mk_{secrets.token_hex(24)}"
    record = {
        "key_hash": {"S": hashlib.sha256(key.encode()).hexdigest()},
        "key_id": {"S": f"key-{secrets.token_hex(6)}"},
        "name": {"S": "limited key of a test"},
        "fingerprint": {"S": "mk_…"},
        "tools": {"L": [{"S": tool} for tool in tools]},
        "scope": {"S": "all"},
        "enabled": {"BOOL": True},
        "created_at": {"S": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")},
    }
    item = {"TableName": variables["KEYS_TABLE"], "Item": record}
    call(variables["AWS_ENDPOINT_URL_DYNAMODB"], "PutItem", item)
    print(key)


main(sys.argv[1], sys.argv[2:])
