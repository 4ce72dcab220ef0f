"""Configurations in a test's installation, stored and read without the operations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from angarium.access import Access
from angarium.settings import Settings
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream

NAME = "acme.billing"
URL = "https://example.com/hook"
TOO_LARGE_SEALED: dict[str, Any] = {
    "url": URL,
    "secrets": ["whsec_" + "QUFB" * 8],
    "headers": {f"x-{number}": "v" * 3900 for number in range(4)},
    "events": [f"{'e' * 60}.{'f' * 60}.{'g' * 60}.{number}" for number in range(240)],
}
"""A configuration that is stored unencrypted, and has more than 64 KiB with sealed secrets."""


class Configurations:
    """The configurations of one installation, over the connection of the test."""

    def __init__(self, js: JetStream, names: Names, prefix: str) -> None:
        self.js = js
        self.names = names
        self.to = Access(js, Settings(prefix=prefix))

    async def store(self, members: Any, name: str = NAME) -> int:
        """Straight into the bucket, as with `nats kv put`; returns the revision."""
        answer = await self.js.publish(self.names.receiver(name), msgspec.json.encode(members))
        assert isinstance(answer, Stored)
        return answer.position

    async def stored(self, name: str = NAME) -> Any:
        """The members that are stored; None: there are none."""
        found = await StoredConfigurations(self.js, self.names).get(name)
        return None if found is None else msgspec.json.decode(found.raw)

    @contextmanager
    def overtaken(self, monkeypatch: pytest.MonkeyPatch, theirs: Any) -> Iterator[None]:
        """Another user replaces each configuration right after it is read in the block."""
        get = StoredConfigurations.get

        async def get_and_be_overtaken(configurations: StoredConfigurations, receiver: str) -> Any:
            found = await get(configurations, receiver)
            await self.store(theirs)
            return found

        with monkeypatch.context() as patched:
            patched.setattr(StoredConfigurations, "get", get_and_be_overtaken)
            yield
