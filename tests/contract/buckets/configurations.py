"""Configurations for the tests of their bucket, written without our own client."""

import json
from typing import Any

from streams.installation.topology import Names
from streams.nats.answers import Answer, Stored
from streams.nats.jetstream import JetStream

RECEIVER = "acme.billing"
URL = "https://example.com/hook"


def raw(**members: Any) -> bytes:
    return json.dumps({"url": URL} | members).encode()


def stored(answer: Answer) -> int:
    assert isinstance(answer, Stored)
    return answer.position


async def put(js: JetStream, names: Names, value: bytes, receiver: str = RECEIVER, **headers: str) -> int:
    """Straight into the bucket, as with `nats kv put`."""
    return stored(await js.publish(names.receiver(receiver), value, headers or None))


async def remove(js: JetStream, names: Names, operation: str = "DEL") -> int:
    return stored(await js.publish(names.receiver(RECEIVER), b"", {"KV-Operation": operation}))
