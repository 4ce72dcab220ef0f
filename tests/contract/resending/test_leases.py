"""The leases within which a copy is sent: they count from the question; nothing is sent again too late."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from streams.installation.topology import Names
from streams.nats.answers import Answer, Forbidden, StoredMessage, Unanswered
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.nats.retry import COMMAND_PATIENCE_S
from streams.resending.redrive_lock import RedriveLock
from streams.resending.replay_lock import ReplayLock
from streams.resending.sources import CheckedSources
from tests.contract.resending.settled_events import ONE
from tests.contract.support.faults import Publish, misbehaving
from tests.contract.support.servers import Server
from tests.contract.support.shards import Clocks
from tests.support.installation import publish

LEASE_S = 5.0
ANSWERED_AFTER_S = 3.0


def taking(js: JetStream, clocks: Clocks, seconds: float) -> Callable[..., Awaitable[StoredMessage | None]]:
    """The question for a message, whose answer takes so long."""
    ask = js.message

    async def slow(*which: Any) -> StoredMessage | None:
        found = await ask(*which)
        clocks.turn(seconds)
        return found

    return slow


async def test_a_source_is_certain_for_a_lease_from_the_question_on(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source may be erased right after the leader looked, even if the answer comes late."""
    clocks, position = Clocks(), await publish(js, names, ONE, b"1")
    sources = CheckedSources(js, names.deliveries, clocks, LEASE_S)
    monkeypatch.setattr(js, "message", taking(js, clocks, ANSWERED_AFTER_S))
    assert await sources.ask(position)
    clocks.turn(LEASE_S - ANSWERED_AFTER_S - 0.1)
    assert sources.is_certain(position)
    clocks.turn(0.2)
    assert not sources.is_certain(position)


async def test_a_copy_in_doubt_is_not_repeated_after_the_deadline(
    server: Server, js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JetStream may have forgotten its id by then; the time passes while its source is asked for again."""
    clocks, position = Clocks(), await publish(js, names, ONE, b"1")

    async def lost(_: Publish) -> Answer:
        clocks.turn(LEASE_S)
        return Unanswered("the request was lost")

    async with misbehaving(server) as faulty:
        lock = ReplayLock(faulty, names, ONE, "run", clocks, lease_s=LEASE_S)
        await lock.acquire()
        sources = lock.sources(names.deliveries)
        assert await sources.ask(position)
        faulty.faults[names.publish_to(ONE)].append(lost)
        store = lock.store

        async def slow_store(**changes: Any) -> None:
            clocks.turn(COMMAND_PATIENCE_S)
            await store(**changes)

        monkeypatch.setattr(lock, "store", slow_store)
        answer = await lock.publish(names.publish_to(ONE), b"1", {"Nats-Msg-Id": "copy"}, sources, position)
        assert isinstance(answer, Unanswered)
        assert len(faulty.published[names.publish_to(ONE)]) == 1


async def test_a_refusal_ends_the_lock_of_a_command_and_a_server_asks_again(
    server: Server, names: Names
) -> None:
    """A person waits for a command; a server waits until an operator grants the permission."""

    async def forbidden(_: Publish) -> Answer:
        return Forbidden("NATS does not permit it")

    key = names.actor_keys.redrive
    async with misbehaving(server) as faulty:
        lock = RedriveLock(faulty, names, "run", Clocks())
        faulty.faults[key] += [forbidden, forbidden]
        await lock.store()
        assert len(faulty.published[key]) == 3
        faulty.for_command = True
        faulty.faults[key].append(forbidden)
        with pytest.raises(NotPermitted, match="does not permit it") as refused:
            await lock.store()
        assert refused.value.final
