"""Streams without a leader: found if JetStream answers, and nothing about them."""

from collections import Counter

import pytest

from actors.errors import Unavailable
from streams.installation.topology import Names
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from streams.observation.installation_status import leaderless_streams
from tests.support.installation import installation


@pytest.fixture
def silent(js: JetStream, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests about each stream that are left unanswered from now on."""
    left = Counter[str]()

    async def stream_info(name: str) -> StreamInfo | None:
        if left[name]:
            left[name] -= 1
            raise Unavailable("no answer in time")
        return await JetStream.stream_info(js, name)

    monkeypatch.setattr(js, "stream_info", stream_info)
    return left


async def test_a_stream_has_no_leader_if_it_does_not_answer_twice(
    js: JetStream, names: Names, silent: Counter[str]
) -> None:
    """The first answer may have been lost to an election."""
    silent |= Counter({names.journal: 2, names.events: 1})
    assert await leaderless_streams(js, installation(names.prefix)) == [names.journal]


async def test_no_stream_is_called_leaderless_if_jetstream_does_not_answer(
    js: JetStream, names: Names, silent: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered() -> None:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(js, "check", unanswered)
    silent |= Counter({names.journal: 2})
    with pytest.raises(Unavailable, match="nobody answers"):
        await leaderless_streams(js, installation(names.prefix))


async def test_no_stream_is_leaderless_if_all_answer(js: JetStream, names: Names) -> None:
    assert await leaderless_streams(js, installation(names.prefix)) == []
