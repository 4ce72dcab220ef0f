"""Servers that have not caught up: which, with which streams, and for how long they must lack messages."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.observation import installation_status
from streams.observation.installation_status import servers_behind
from tests.support.installation import installation


@dataclass
class Replicas:
    """Answers for all streams: the servers that are behind at the first check, and at those after it."""

    js: JetStream
    looks: list[dict[str, tuple[str, ...]]]
    asked: dict[str, int] = field(default_factory=dict)

    async def stream_info(self, name: str) -> StreamInfo | None:
        found = await JetStream.stream_info(self.js, name)
        assert found is not None
        look = self.asked[name] = self.asked.get(name, -1) + 1
        return replace(found, behind=self.looks[look].get(name, ()))


async def test_a_server_is_behind_only_if_it_lacks_messages_of_a_stream_for_some_time(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation_status, "BEHIND_FOR_S", 0.0)
    replicas = Replicas(
        js,
        [
            {names.events: ("b", "c"), names.nodes: ("c",), names.journal: ("b",)},
            {names.events: ("c",), names.nodes: ("c",), names.journal: ()},
        ],
    )
    monkeypatch.setattr(js, "stream_info", replicas.stream_info)
    assert await servers_behind(js, installation(names.prefix)) == {"c": sorted([names.events, names.nodes])}


async def test_no_server_is_behind_if_none_lacks_messages(js: JetStream, names: Names) -> None:
    assert await servers_behind(js, installation(names.prefix)) == {}
