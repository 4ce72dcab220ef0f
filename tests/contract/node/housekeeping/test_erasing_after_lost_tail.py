"""Deletions after a lost tail: a position that was read may hold another event now, which must stay.

The server in memory loses a tail here, and the connection with it, as when the real one lost power.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from actors.errors import Unavailable
from actors.machine.facts import Burial
from angarium.node.housekeeping import eraser as eraser_module
from angarium.node.housekeeping import erasure_steps
from angarium.node.housekeeping.eraser import Eraser
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import DeadLetters
from streams.erasing import search
from streams.erasing.erasures import Erasures
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.envelope import encode_flush
from streams.journal.routing_progress import RoutingProgress
from streams.lost_tails.deletion import delete_known
from streams.lost_tails.marks import Mark
from streams.nats.wire import Message
from streams.reading.backlog import Backlog
from tests.contract.support.power_loss import Powerless, powerless
from tests.contract.support.routers import PARTITION, announce
from tests.support.installation import SHARDS, install, publish, shard
from tests.support.ledgers import RECEIVER, JournalWriter, delivered, failed, opens

SECRET = {"Angarium-Id": "e1"}
NEW = {"Angarium-Id": "new"}
Store = Callable[[], Awaitable[int]]


@pytest.fixture(autouse=True)
def no_late_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.0)


@pytest.fixture
async def nats() -> AsyncIterator[Powerless]:
    async with powerless() as nats:
        yield nats


@pytest.fixture
async def names(nats: Powerless) -> Names:
    return await install(nats.js, "lost")


async def erase(nats: Powerless, names: Names) -> None:
    """A request to erase e1, and one search of the eraser."""
    await Erasures(nats.js, names).request("acme", "e1", "ops@host", time.time())
    await Eraser(
        nats.js, names, StoredConfigurations(nats.js, names), time.time, SHARDS, lambda: 1
    ).erase_due()


def once_after(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], Awaitable[object]]
) -> None:
    """Do something after the first call of a coroutine function has got its answer."""
    real, done = getattr(owner, name), list[bool]()

    async def call(*args: Any, **more: Any) -> Any:
        answer = await real(*args, **more)
        if not done:
            done.append(True)
            await act()
        return answer

    monkeypatch.setattr(owner, name, call)


def retaken(nats: Powerless, stream: str, position: int, store: Store) -> Callable[[], Awaitable[None]]:
    """Lose the message at the position; another one takes its place."""

    async def act() -> None:
        nats.lose_tail(stream, position - 1)
        assert await store() == position

    return act


async def is_there(nats: Powerless, stream: str, position: int) -> bool:
    return await nats.js.message(stream, position) is not None


async def test_a_published_event_at_the_position_of_an_erased_one_stays(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = nats.js
    position = await announce(js, names, b"secret", headers=SECRET)
    routing = RoutingProgress(routed=position, parked_tenants={})
    data = encode_flush(
        node="a", epoch=1, flush=1, floor=0, routing=routing, at=0.0, unclean=None, facts=[]
    )  # fmt: skip
    await js.publish(names.journal_of(PARTITION), data)
    other = retaken(nats, names.events, position, lambda: announce(js, names, b"another", headers=NEW))
    once_after(monkeypatch, erasure_steps, "read_shard_record", other)
    await erase(nats, names)
    assert await is_there(nats, names.events, position)


async def test_a_delivery_at_the_position_of_an_erased_one_stays(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has answered that it does not know the receiver."""
    js = nats.js
    position = await publish(js, names, RECEIVER, b"secret", SECRET)
    unknown = {"ok": False, "error": {"code": "unknown_receiver", "message": "no such receiver"}}

    other = retaken(nats, names.deliveries, position, lambda: publish(js, names, RECEIVER, b"another", NEW))
    owner, request = names.control("erase", *RECEIVER.split(".")), js.request

    async def ask(subject: str, *more: Any, **options: Any) -> Message:
        if subject != owner:
            return await request(subject, *more, **options)
        await other()
        return Message(subject, msgspec.json.encode(unknown))

    monkeypatch.setattr(js, "request", ask)
    await erase(nats, names)
    assert await is_there(nats, names.deliveries, position)


async def test_an_owner_leaves_a_delivery_at_the_position_of_an_erased_one(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    js = nats.js
    position = await publish(js, names, RECEIVER, b"secret", SECRET)
    message = await js.message(names.deliveries, position)
    assert message is not None
    lost = retaken(nats, names.deliveries, position, lambda: publish(js, names, RECEIVER, b"another", NEW))
    unanswered_once(monkeypatch, nats, lost)
    backlog = Backlog(js, names, shard(RECEIVER), asyncio.Semaphore(1))
    await backlog.erase(position, message.stored_at)
    assert await is_there(nats, names.deliveries, position)


def unanswered_once(
    monkeypatch: pytest.MonkeyPatch, nats: Powerless, act: Callable[[], Awaitable[None]]
) -> None:
    """The first request to delete gets no answer, since the server goes away."""
    delete, tried = nats.js.delete, list[bool]()

    async def unanswered(stream: str, sequence: int) -> bool:
        if tried:
            return await delete(stream, sequence)
        tried.append(True)
        await act()
        raise Unavailable("NATS went away before it answered")

    monkeypatch.setattr(nats.js, "delete", unanswered)


async def buried(nats: Powerless, names: Names, event: str) -> int:
    """A dead letter of the event; returns its position."""
    position = await publish(nats.js, names, RECEIVER, b"secret", {"Angarium-Id": event})
    burial = Burial(position=position, reason="rejected", sequence=position)
    await DeadLetterWriter(nats.js, names).bury(RECEIVER, [burial])
    await nats.js.delete(names.deliveries, position)
    return nats.end_of(names.dead_letters)


async def test_a_letter_at_the_position_of_a_dropped_one_stays(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = await buried(nats, names, "e1")
    letters = DeadLetters(nats.js, names)
    letter = await letters.letter(position)
    assert letter is not None
    lost = retaken(nats, names.dead_letters, position, lambda: buried(nats, names, "new"))
    unanswered_once(monkeypatch, nats, lost)
    assert await letters.drop([letter.mark]) == 0
    assert await is_there(nats, names.dead_letters, position)


async def test_a_letter_at_the_position_of_an_erased_one_stays(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = await buried(nats, names, "e1")
    lost = retaken(nats, names.dead_letters, position, lambda: buried(nats, names, "new"))
    once_after(monkeypatch, search, "dead_letters", lost)
    await erase(nats, names)
    assert await is_there(nats, names.dead_letters, position)


async def test_a_flush_at_the_position_of_an_erased_one_stays(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush stays even if the copy for readers is being stored at that moment."""
    for room, name in ((erasure_steps, "read_checkpoint"), (erasure_steps, "store_redacted")):
        journal = JournalWriter(nats.js, names)
        position = await journal.flush(failed(1, answer="secret"))
        await journal.flush(opens())
        checkpoint = encode_checkpoint(Checkpoint(journal_position=position))
        await nats.js.publish(names.actor_keys.checkpoint(shard(RECEIVER)), checkpoint)

        async def other(journal: JournalWriter = journal) -> int:
            first = await journal.flush(delivered(7))
            await journal.flush(opens())
            return first

        with monkeypatch.context() as patch:
            once_after(patch, room, name, retaken(nats, names.journal, position, other))
            await erase(nats, names)
        assert await is_there(nats, names.journal, position)


async def test_nothing_is_deleted_over_another_connection_than_it_was_read(
    nats: Powerless, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tail may have been lost between the two requests."""
    position = await publish(nats.js, names, RECEIVER, b"secret", SECRET)
    message = await nats.js.message(names.deliveries, position)
    assert message is not None

    async def restart() -> None:
        nats.reconnect()

    once_after(monkeypatch, nats.js, "message", restart)
    mark = Mark(position=position, stored_at=message.stored_at)
    with pytest.raises(Unavailable, match="the connection was lost"):
        await delete_known(nats.js, names.deliveries, mark)
    assert await delete_known(nats.js, names.deliveries, mark)
    assert not await delete_known(nats.js, names.deliveries, mark)
