"""Late copies of an erased event: what the eraser waits for, and what it erases when they arrive."""

import asyncio
import time
from typing import Any

import pytest
from msgspec.structs import replace

from actors.machine.bucket import CLOCK_SKEW_S
from actors.machine.facts import Burial
from actors.machine.numbering import Numbered
from angarium.node.housekeeping import eraser as eraser_module
from angarium.node.housekeeping.eraser import Eraser
from streams.buckets.stored_configurations import StoredConfigurations
from streams.dead_letters.bury import DeadLetterWriter
from streams.erasing import search
from streams.erasing.erasures import Erasure, Erasures
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.nats.answers import StreamInfo
from streams.nats.jetstream import JetStream
from tests.contract.support.owners import owner_answers
from tests.contract.support.routers import announce
from tests.support.installation import SHARDS, publish, shard
from tests.support.ledgers import RECEIVER, JournalWriter, failed, opens
from tests.support.waiting import until_true

LATE_S = 1.0
SECRET = {"Angarium-Id": "e1"}
LONG_AFTER_S = eraser_module.LATE_COPY_MAX_S + CLOCK_SKEW_S + 60.0
ENDED = {"ok": True, "messages": 1, "waiting": 0}
NAMELESS = "acme._late"
"""No receiver can have this name, so the eraser itself deletes what was sent to it."""


async def status(js: JetStream, names: Names) -> Erasure:
    found = await Erasures(js, names).get("acme", "e1")
    assert found is not None
    return found


async def erased_by(eraser: Eraser, js: JetStream, names: Names) -> bool:
    """Let the eraser look once more; true if the erasure is done then."""
    await eraser.erase_due()
    return (await status(js, names)).done_at is not None


async def test_a_node_that_gets_shard_0_back_waits_for_late_copies_from_the_beginning(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that had it meanwhile has erased a copy, and copies of that may be on their way."""
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", LATE_S)
    epoch = 1
    first, second = (
        Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, owned)
        for owned in (lambda: epoch, lambda: 2)
    )
    await publish(js, names, NAMELESS, b"secret", SECRET)
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    await first.erase_due()
    await asyncio.sleep(1.1 * LATE_S)
    await publish(js, names, NAMELESS, b"secret", SECRET | {"Nats-Msg-Id": "late"})
    await second.erase_due()
    assert (await status(js, names)).deliveries == 2
    epoch = 3
    await first.erase_due()
    assert (await status(js, names)).done_at is None
    await until_true(lambda: erased_by(first, js, names))


async def test_a_node_that_loses_shard_0_during_its_search_does_not_end_the_erasure(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.0)
    epochs = iter((1, 1, 2, 2, 2, 2))
    working = Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, lambda: next(epochs))
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    for _ in range(2):
        await working.erase_due()
    found = await status(js, names)
    assert (found.done_at, found.waits_for) == (None, "another node may have erased a copy meanwhile")
    for _ in range(2):
        await working.erase_due()
    assert (await status(js, names)).done_at is not None


async def test_with_replicas_it_waits_as_long_as_a_deposed_leader_may_answer_a_replay(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deposed leader still reports the source of a copy after it was deleted."""
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.0)
    monkeypatch.setattr(eraser_module, "DEPOSED_LEADER_MAX_S", LATE_S)
    info_of = js.existing_stream

    async def with_replicas(stream: str) -> StreamInfo:
        info = await info_of(stream)
        return replace(info, config=info.config | {"num_replicas": 3})

    monkeypatch.setattr(js, "existing_stream", with_replicas)
    working = Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, lambda: 1)
    await publish(js, names, NAMELESS, b"secret", SECRET)
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    for _ in range(2):
        await working.erase_due()
    assert (await status(js, names)).waits_for.startswith("the last copies")
    await until_true(lambda: erased_by(working, js, names))


class Installation:
    """An erasure that is done, and what a receiver gets and answers after it."""

    def __init__(self, js: JetStream, names: Names) -> None:
        self.js = js
        self.names = names
        self.ahead_s = 0.0
        self.journal = JournalWriter(js, names)
        self.eraser = self.new_eraser()

    def new_eraser(self) -> Eraser:
        receivers = StoredConfigurations(self.js, self.names)
        return Eraser(self.js, self.names, receivers, lambda: time.time() + self.ahead_s, SHARDS, lambda: 1)

    async def erase(self) -> int:
        """Erase the event e1; returns the position that it had."""
        source = await announce(self.js, self.names, b"secret", headers=SECRET)
        await self.js.delete(self.names.events, source)
        await Erasures(self.js, self.names).request("acme", "e1", "ops@host", time.time())
        for _ in range(2):
            await self.eraser.erase_due()
        assert (await status(self.js, self.names)).done_at is not None
        return source

    async def rejected(self, number: int, **headers: str) -> int:
        """A delivery of e1 is posted, rejected with an answer, and dead-lettered; returns its position."""
        position = await publish(self.js, self.names, RECEIVER, b"secret", SECRET | headers)
        burial = Burial(position=position, reason="rejected", sequence=number)
        await DeadLetterWriter(self.js, self.names).bury(RECEIVER, [burial])
        source = int(headers.get("Angarium-Source", "0"))
        event = Numbered(sequence=number, position=position, id="e1", stored_at=0.0, source=source)
        self.flushed = await self.journal.flush(failed(number, answer="secret", events=(event,)))
        await self.journal.flush(opens())
        return position

    async def checkpoint(self) -> None:
        """The shard needs nothing of the journal up to here."""
        checkpoint = encode_checkpoint(Checkpoint(journal_position=self.flushed))
        await self.js.publish(self.names.actor_keys.checkpoint(shard(RECEIVER)), checkpoint)

    async def left(self) -> tuple[int, int]:
        """The number of dead letters, and of flushes with answers."""
        letters = await search.dead_letters(self.js, self.names, "acme", "e1")
        return len(letters), len(await search.answers(self.js, self.names, "acme", "e1"))

    async def status(self) -> Erasure:
        return await status(self.js, self.names)


@pytest.fixture
async def installation(js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.0)
    return Installation(js, names)


async def test_a_late_copy_is_erased_with_its_dead_letter_and_its_answer(installation: Installation) -> None:
    source = await installation.erase()
    first = await installation.status()
    await installation.rejected(1, **{"Angarium-Source": str(source)})
    await installation.checkpoint()
    installation.ahead_s = LONG_AFTER_S
    async with owner_answers(installation.js, installation.names, RECEIVER, ENDED):
        await installation.eraser.erase_due()
    assert await installation.left() == (0, 0)
    done = await installation.status()
    assert (done.deliveries, done.dead_letters, done.flushes) == (1, 1, 1)
    assert (done.done_at or 0.0) > (first.done_at or 0.0) + LONG_AFTER_S
    assert done.journal_end > installation.flushed  # Up to there ledgers erase answers.


async def test_the_answer_to_a_late_copy_is_found_by_another_node(installation: Installation) -> None:
    """The copy itself was erased by a node that died before it could erase the answer."""
    source = await installation.erase()
    position = await installation.rejected(1, **{"Angarium-Source": str(source)})
    installation.ahead_s = LONG_AFTER_S
    async with owner_answers(installation.js, installation.names, RECEIVER, ENDED):
        await installation.eraser.erase_due()
    found = await installation.status()
    assert found.waits_for.startswith("copies came late: no checkpoint of shard")
    assert await installation.left() == (0, 1)
    await installation.js.delete(installation.names.deliveries, position)
    await installation.checkpoint()
    await installation.new_eraser().erase_due()
    assert await installation.left() == (0, 0)
    done = await installation.status()
    assert (done.waits_for, done.dead_letters, done.flushes) == ("", 1, 1)
    assert done.journal_end > found.journal_end


@pytest.mark.parametrize("sent", ["routed", "directly"])
async def test_letters_and_answers_of_what_is_sent_after_an_erasure_stay(
    installation: Installation, sent: str
) -> None:
    await installation.erase()
    again = await announce(installation.js, installation.names, b"new", headers=SECRET)
    headers: dict[str, Any] = {"Angarium-Source": str(again)} if sent == "routed" else {}
    await installation.rejected(1, **headers)
    await installation.checkpoint()
    installation.ahead_s = LONG_AFTER_S
    before = await installation.status()
    async with owner_answers(installation.js, installation.names, RECEIVER, ENDED):
        await installation.eraser.erase_due()
    assert (await installation.left(), await installation.status()) == ((1, 1), before)


async def test_a_node_whose_clock_is_ahead_looks_again_no_earlier(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure was done by the clock of another node; the bytes of a connection go by no clock at all."""
    source = await installation.erase()
    await installation.rejected(1, **{"Angarium-Source": str(source)})
    await installation.checkpoint()
    installation.ahead_s = eraser_module.LATE_COPY_MAX_S + CLOCK_SKEW_S / 2
    ahead = installation.new_eraser()
    async with owner_answers(installation.js, installation.names, RECEIVER, ENDED):
        await ahead.erase_due()
        assert await installation.left() == (1, 1)
        monkeypatch.setattr(eraser_module, "LATE_COPY_MAX_S", 0.2)  # As long as it has known the record.
        installation.ahead_s = 0.0
        await asyncio.sleep(0.3)
        await ahead.erase_due()
    assert await installation.left() == (0, 0)
