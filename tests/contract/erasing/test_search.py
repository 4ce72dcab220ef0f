"""The searches of an erasure, with a lagging replica or a deposed leader: none ends without proof."""

from collections.abc import Awaitable, Callable

import pytest

from actors.errors import Unavailable
from actors.machine.facts import Burial
from streams.dead_letters.bury import DeadLetterWriter
from streams.erasing import search
from streams.installation.topology import Names
from streams.nats.answers import Page, StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.routers import announce
from tests.support.installation import publish
from tests.support.ledgers import RECEIVER, JournalWriter, failed

Search = Callable[[JetStream, Names, str, str], Awaitable[object]]


async def stored_everywhere(js: JetStream, names: Names) -> None:
    """The event e1 in each of the streams."""
    headers = {"Angarium-Id": "e1"}
    await announce(js, names, b"secret", headers=headers)
    position = await publish(js, names, RECEIVER, b"secret", headers)
    burial = Burial(position=position, reason="rejected", sequence=1)
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial])
    await JournalWriter(js, names).flush(failed(1, answer="secret"))


@pytest.mark.parametrize("find", [search.events, search.deliveries, search.dead_letters, search.answers])
async def test_a_search_does_not_end_before_a_message_that_only_a_majority_knows(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch, find: Search
) -> None:
    await stored_everywhere(js, names)
    assert await find(js, names, "acme", "e1")

    async def lagging(*_: object) -> Page:
        return Page([], 0)

    async def deposed(*_: object) -> StoredMessage | None:
        return None

    monkeypatch.setattr(js, "read", lagging)
    monkeypatch.setattr(js, "next_message", deposed)
    with pytest.raises(Unavailable, match="does not know the message at"):
        await find(js, names, "acme", "e1")
