"""The eraser: what it waits for, what it must not erase, and that no request delays another."""

import time
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from angarium.node.housekeeping import eraser as eraser_module
from angarium.node.housekeeping import erasure_steps
from angarium.node.housekeeping.eraser import Eraser
from streams.buckets.stored_configurations import StoredConfigurations
from streams.erasing import search
from streams.erasing.erasures import Erasure, Erasures, finished
from streams.erasing.old_erasures import KEPT_FOR_S, drop_old_erasures
from streams.installation.topology import Names
from streams.journal.checkpoint import Checkpoint, encode_checkpoint
from streams.journal.envelope import decode_flush, encode_flush
from streams.journal.routing_progress import RoutingProgress
from streams.journal_feed.journal_reader import JournalReader
from streams.journal_feed.redacted_flushes import store_redacted
from streams.lost_tails.read_positions import BEGINNING
from streams.nats.answers import Put, Stored, StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from tests.contract.support.owners import owner_answers
from tests.contract.support.routers import PARTITION, OpenOwner, announce, settled
from tests.support.installation import SHARDS, publish, shard
from tests.support.ledgers import RECEIVER, JournalWriter, delivered, failed, opens
from tests.support.waiting import until_true

NAMES = {"long": "x" * 4000, "reserved": "_a", "escape": "\x1b[31m"}


@pytest.fixture(autouse=True)
def no_late_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an erasure be done at once, if a test does not want it otherwise."""
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.0)


async def publish_event(js: JetStream, names: Names, tenant: str, type_: str, headers: dict[str, str]) -> int:
    answer = await js.publish(names.publish_event(tenant, type_), b"secret", headers)
    assert isinstance(answer, Stored)
    return answer.position


def eraser(js: JetStream, names: Names) -> Eraser:
    return Eraser(js, names, StoredConfigurations(js, names), time.time, SHARDS, lambda: 1)


async def looked(working: Eraser) -> bool:
    """Look, and look again for what came late."""
    await working.erase_due()
    return await working.erase_due()


async def status(js: JetStream, names: Names, event: str = "e1") -> Erasure:
    found = await Erasures(js, names).get("acme", event)
    assert found is not None
    return found


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
async def test_an_event_sent_to_an_invalid_name_is_erased(js: JetStream, names: Names, name: str) -> None:
    position = await publish(js, names, f"acme.{name}", b"secret", {"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    assert not await looked(eraser(js, names))
    done = await status(js, names)
    assert (done.done_at is not None, done.deliveries, done.waits_for) == (True, 1, "")
    assert await js.message(names.deliveries, position) is None


async def test_an_event_in_no_partition_is_erased_at_once(js: JetStream, names: Names) -> None:
    """The second token of its subject is a tenant, where those of other events have a partition."""
    position = await publish_event(js, names, "acme", "acme.*", {"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    assert not await looked(eraser(js, names))
    done = await status(js, names)
    assert (done.done_at is not None, done.events, done.waits_for) == (True, 1, "")
    assert await js.message(names.events, position) is None


async def test_no_tenant_erases_another_tenants_event_by_a_name_in_its_type(
    js: JetStream, names: Names
) -> None:
    position = await publish_event(js, names, "umbra", "acme.*", {"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    await looked(eraser(js, names))
    assert (await status(js, names)).events == 0
    assert await js.message(names.events, position) is not None


async def test_an_event_is_erased_once_it_is_routed_even_after_a_long_time(
    js: JetStream, names: Names, open_owner: OpenOwner
) -> None:
    position = await announce(js, names, b"secret", headers={"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time() - 3600)
    working = eraser(js, names)
    await looked(working)
    assert (await status(js, names)).waits_for == "the event is being routed"
    assert await js.message(names.events, position) is not None
    await open_owner()
    await settled(js, names, position)
    for parked in ({"acme": position}, {"acme": position + 1}):
        assert (await status(js, names)).done_at is None
        data = encode_flush(
            node="a", epoch=1, flush=1, floor=0,
            routing=RoutingProgress(routed=position, parked_tenants=parked), at=0.0, unclean=None, facts=[],
        )  # fmt: skip
        await js.publish(names.journal_of(PARTITION), data)
        await looked(working)
    done = await status(js, names)
    assert (done.done_at is not None, done.events) == (True, 1)
    assert await js.message(names.events, position) is None


async def test_a_copy_that_comes_late_is_erased(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eraser_module, "COPIES_UNTIL_LEASE_ENDS_S", 0.3)
    await publish(js, names, "acme._late", b"secret", {"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    began = time.monotonic()
    await working.erase_due()
    assert (await status(js, names)).waits_for.startswith("the last copies")
    late = await publish(js, names, "acme._late", b"secret", {"Angarium-Id": "e1", "Nats-Msg-Id": "late"})

    async def done() -> bool:
        await working.erase_due()
        return (await status(js, names)).done_at is not None

    await until_true(done)
    assert time.monotonic() - began >= 0.6  # The copy that came late may not have been the last.
    assert (await status(js, names)).deliveries == 2
    assert await js.message(names.deliveries, late) is None


async def copy(js: JetStream, names: Names, event: str, source: int) -> int:
    """Publish a copy of an event to a name that is none, as a router does; returns its position."""
    return await publish(
        js, names, "acme._late", b"secret", {"Angarium-Id": event, "Angarium-Source": str(source)}
    )


async def test_a_copy_that_comes_after_the_erasure_is_found_by_a_second_search(
    js: JetStream, names: Names
) -> None:
    """A router that was suspended had given it to its connection before."""
    ahead_s = 0.0
    working = Eraser(
        js, names, StoredConfigurations(js, names), lambda: time.time() + ahead_s, SHARDS, lambda: 1
    )
    source = await announce(js, names, b"secret", headers={"Angarium-Id": "e1"})
    await js.delete(names.events, source)
    await copy(js, names, "e1", source)
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    await looked(working)
    first = await status(js, names)
    assert (first.done_at is not None, first.deliveries) == (True, 1)
    late = await copy(js, names, "e1", source)
    new = [
        await announce(js, names, b"new", headers={"Angarium-Id": "e1"}),
        await publish(js, names, "acme._late", b"new", {"Angarium-Id": "e1"}),
    ]
    new.append(await copy(js, names, "e1", new[0]))
    await looked(working)
    assert await js.message(names.deliveries, late) is not None
    ahead_s = 901.0
    await looked(working)
    assert await js.message(names.deliveries, late) is None
    second = await status(js, names)
    assert (second.deliveries, second.by) == (2, "ops@host")
    assert (second.done_at or 0.0) > (first.done_at or 0.0) + 600
    third = await copy(js, names, "e1", source)  # Another one may have come after that.
    ahead_s = 1803.0
    await looked(working)
    assert await js.message(names.deliveries, third) is None
    assert (await status(js, names)).deliveries == 3
    # What producers have sent since is a new event.
    assert await js.message(names.events, new[0]) is not None
    assert None not in [await js.message(names.deliveries, position) for position in new[1:]]


async def test_a_new_eraser_looks_again_only_for_recent_erasures(js: JetStream, names: Names) -> None:
    now, erasures = time.time(), Erasures(js, names)
    for event, ago in (("e1", 1800.0), ("e2", 7200.0)):
        await erasures.request("acme", event, "ops@host", now - ago)
        async for request, revision in erasures.pending():
            await erasures.store_progress(finished(request, now - ago, 1, 1), revision)
        await copy(js, names, event, 1)
    working = eraser(js, names)
    for _ in range(3):
        await working.erase_due()
    assert [(await status(js, names, event)).deliveries for event in ("e1", "e2")] == [1, 0]


async def test_a_new_eraser_reads_the_records_of_others_many_at_a_time(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are read in order; later reads get only new ones."""
    now, erasures = time.time(), Erasures(js, names)
    for number in range(20):
        await erasures.request("acme", f"e{number}", "ops@host", now)
    done = [each async for each in erasures.pending()][:15]
    for number, (request, revision) in enumerate(done):
        await erasures.store_progress(finished(request, now - 1000.0 * number, 1, 1), revision)
    last_message, next_message = js.last_message, js.next_message
    reading, most, one_by_one = 0, 0, 0

    async def counted(stream: str, subject: str) -> StoredMessage | None:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        found = await last_message(stream, subject)
        reading -= 1
        return found

    async def following(stream: str, subject: str, sequence: int) -> StoredMessage | None:
        nonlocal one_by_one
        one_by_one += 1
        return await next_message(stream, subject, sequence)

    monkeypatch.setattr(js, "last_message", counted)
    monkeypatch.setattr(js, "next_message", following)
    fresh = Erasures(js, names)
    found = [each async for each in fresh.unread(now - 2500.0)]
    assert [each.event for each, _ in found] == [f"e{number}" for number in (15, 16, 17, 18, 19, 0, 1, 2)]
    assert [revision for _, revision in found] == sorted(revision for _, revision in found)
    assert (most, one_by_one) == (20, 1)


async def test_a_record_of_an_erasure_is_dropped_long_after_its_end(js: JetStream, names: Names) -> None:
    now, erasures = time.time(), Erasures(js, names)
    ended = {"old": KEPT_FOR_S + 60.0, "new": KEPT_FOR_S - 60.0, "open": None}
    for event, ago in ended.items():
        await erasures.request("acme", event, "ops@host", now - 2 * KEPT_FOR_S)
        async for request, revision in erasures.pending():
            if ago is not None:
                await erasures.store_progress(finished(request, now - ago, 1, 1), revision)
    assert await drop_old_erasures(js, names, now) is None
    left = [event for event in ended if await erasures.get("acme", event) is not None]
    assert left == ["new", "open"]
    again = await erasures.request("acme", "old", "ops@host", now)
    assert again.done_at is None


async def test_nothing_is_looked_for_twice_after_its_end(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request before it keeps the eraser from forgetting it."""
    await publish(js, names, "acme.billing", b"secret", {"Angarium-Id": "e1"})  # No node can end this one.
    now, erasures, asked = time.time(), Erasures(js, names), list[str]()
    await erasures.request("acme", "e1", "ops@host", now)
    await erasures.request("other", "e2", "ops@host", now)
    _, (request, revision) = [each async for each in erasures.pending()]
    await erasures.store_progress(finished(request, now - 1000.0, 1, 1), revision)
    search_copies = search.late_copies

    async def late_copies(js: JetStream, names: Names, tenant: str, event: str, source_max: int) -> Any:
        asked.append(event)
        return await search_copies(js, names, tenant, event, source_max)

    monkeypatch.setattr(search, "late_copies", late_copies)
    working = eraser(js, names)
    for _ in range(3):
        await working.erase_due()
    assert asked == ["e2"]


async def test_a_request_that_waits_does_not_make_all_later_ones_be_read_in_each_round(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(js, names, "acme.billing", b"secret", {"Angarium-Id": "e0"})  # No node can end this one.
    erasures, seen = Erasures(js, names), list[list[str]]()
    for number in range(10):
        await erasures.request("acme", f"e{number}", "ops@host", 1.0)
    async for request, revision in erasures.pending():
        if request.event != "e0":
            await erasures.store_progress(finished(request, 1.0, 1, 1), revision)
    next_message, asked = js.next_message, list[str]()

    async def counted(stream: str, subject: str, sequence: int) -> StoredMessage | None:
        asked.append(stream)
        return await next_message(stream, subject, sequence)

    monkeypatch.setattr(js, "next_message", counted)
    reading = Erasures(js, names)
    for _ in range(3):
        asked.clear()
        seen.append([each.event async for each, _ in reading.unread()])
    assert (len(seen[0]), seen[1:], asked) == (10, [["e0"], ["e0"]], [names.actors])
    # Another node stores how far it is, and others ask for more.
    [(request, revision)] = [each async for each in reading.pending()]
    await erasures.store_progress(replace(request, waits_for="a node"), revision)
    await erasures.request("acme", "new", "ops@host", 2.0)
    assert [(each.event, each.waits_for) async for each, _ in reading.unread()] == [
        ("e0", "a node"),
        ("new", ""),
    ]


async def test_an_event_that_is_erased_again_is_looked_for_again(js: JetStream, names: Names) -> None:
    for deliveries in (1, 0):
        if deliveries:
            await publish(js, names, "acme._a", b"secret", {"Angarium-Id": "e1"})
        await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
        assert (await status(js, names)).done_at is None
        await looked(eraser(js, names))
        done = await status(js, names)
        assert (done.done_at is not None, done.deliveries) == (True, deliveries)


async def test_no_flush_is_erased_that_a_recovery_may_read(js: JetStream, names: Names) -> None:
    journal, number = JournalWriter(js, names), shard(RECEIVER)
    position = await journal.flush(failed(1, answer="secret"))
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    for checkpoint, waits_for in (
        (None, f"no checkpoint of shard {number} is after an answer in the journal"),
        (position - 1, f"no checkpoint of shard {number} is after an answer in the journal"),
        (position, f"shard {number} has recorded nothing after an answer in the journal"),
    ):
        if checkpoint is not None:
            await js.publish(
                names.actor_keys.checkpoint(number),
                encode_checkpoint(Checkpoint(journal_position=checkpoint)),
            )
        await looked(working)
        assert (await status(js, names)).waits_for == waits_for
        assert await js.message(names.journal, position) is not None
    last = await journal.flush(opens())
    await looked(working)
    done = await status(js, names)
    assert (done.done_at is not None, done.flushes, done.journal_end) == (True, 1, last)
    assert await js.message(names.journal, position) is None


async def test_the_facts_of_other_tenants_in_an_erased_flush_stay_readable(
    js: JetStream, names: Names
) -> None:
    """The facts stay readable even if the eraser dies between the copy and the deletion."""
    journal, number = JournalWriter(js, names), shard(RECEIVER)
    theirs = delivered(7, receiver="other.orders")
    position = await journal.flush(failed(1, answer="secret"), theirs)
    await journal.flush(opens())
    await js.publish(
        names.actor_keys.checkpoint(number), encode_checkpoint(Checkpoint(journal_position=position))
    )
    message = await js.message(names.journal, position)
    assert message is not None
    await store_redacted(js, names, message)
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    await looked(eraser(js, names))
    assert (await status(js, names)).flushes == 1
    assert await js.message(names.journal, position) is None
    reader = JournalReader(js, names)
    await reader.check(BEGINNING)
    [copy, *_] = cast(list[StoredMessage], await reader.read(0))
    assert decode_flush(copy.data, "a copy").facts == (failed(1), theirs)
    reader.stop()


async def test_an_owner_that_has_not_decided_about_it_is_asked_again(js: JetStream, names: Names) -> None:
    position = await publish(js, names, "acme.billing", b"secret", {"Angarium-Id": "e1"})
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    undecided = {"ok": False, "error": {"code": "unavailable", "message": "it is being turned away"}}
    async with owner_answers(js, names, "acme.billing", undecided):
        await looked(working)
    assert (await status(js, names)).waits_for == "it is being turned away"
    assert await js.message(names.deliveries, position) is not None
    unknown = {"ok": False, "error": {"code": "unknown_receiver", "message": "no such receiver"}}
    async with owner_answers(js, names, "acme.billing", unknown):
        await looked(working)
    assert (await status(js, names)).done_at is not None
    assert await js.message(names.deliveries, position) is None


async def test_an_erasure_does_not_trust_stream_ends_from_a_deposed_leader(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = await announce(js, names, b"another")
    last = await JournalWriter(js, names).flush(opens())
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    await working.erase_due()
    info_of, asked = js.existing_stream, dict[str, int]()

    async def deposed_at_first(stream: str) -> StreamInfo:
        info = await info_of(stream)
        asked[stream] = asked.get(stream, 0) + 1
        return replace(info, last=0, heard_s=60.0) if asked[stream] % 2 else info

    monkeypatch.setattr(js, "existing_stream", deposed_at_first)
    await working.erase_due()
    monkeypatch.undo()
    done = await status(js, names)
    assert (done.done_at is not None, done.journal_end, done.events_end) == (True, last, position)


async def test_the_other_owners_of_the_tenant_are_asked_to_forget(js: JetStream, names: Names) -> None:
    """Their memory may hold an answer, and their shards must continue; nothing is done without theirs."""
    receivers = StoredConfigurations(js, names)
    for receiver in (RECEIVER, "other.orders"):
        await receivers.put(receiver, b'{"url": "https://example.com/"}')
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    await looked(working)
    assert (await status(js, names)).waits_for.endswith(f"({RECEIVER})")
    async with owner_answers(js, names, RECEIVER, {"ok": True, "messages": 0, "waiting": 0}):
        await looked(working)
    assert (await status(js, names)).done_at is not None


async def test_a_tenant_whose_owners_do_not_answer_delays_others_by_one_deadline(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tenant's receivers are all asked within one deadline, and then the tenant waits as long."""
    monkeypatch.setattr(erasure_steps, "OWNER_TIMEOUT_S", 0.4)
    monkeypatch.setattr(erasure_steps, "OWNERS_ASKED_AT_ONCE", 2)
    monkeypatch.setattr(eraser_module, "TRY_EVERY_S", 0.1)
    asked = list[str]()
    hangs = await js.wire.subscribe(
        names.control("erase", "acme", "*"), lambda message: asked.append(message.subject)
    )
    for number in range(8):
        await StoredConfigurations(js, names).put(f"acme.r{number}", b'{"url": "https://example.com/"}')
    for tenant in ("acme", "other"):
        await Erasures(js, names).request(tenant, "e1", "ops@host", time.time())
    working = eraser(js, names)
    began = time.monotonic()
    await working.erase_due()
    assert 0.4 <= time.monotonic() - began < 0.8
    assert (await status(js, names)).waits_for == "owners of its tenant's receivers have not answered yet"
    other = await Erasures(js, names).get("other", "e1")
    assert other is not None
    assert other.waits_for.startswith("the last copies"), "it had its turn"
    asked.clear()
    await working.erase_due()
    assert asked == []
    await hangs.unsubscribe()


async def test_owners_that_have_answered_are_not_asked_again(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a tenant with more receivers than can be asked within a deadline would never be done."""
    monkeypatch.setattr(erasure_steps, "OWNER_TIMEOUT_S", 0.3)
    asked, silent = list[str](), {"acme.r1"}

    def reply(message: Message) -> None:
        receiver = f"acme.{message.subject.rpartition('.')[2]}"
        asked.append(receiver)
        if receiver not in silent:
            answer = msgspec.json.encode({"ok": True, "messages": 0, "waiting": 0})
            js.wire.send([Put(message.reply, answer, None)], [""])

    owners = await js.wire.subscribe(names.control("erase", "acme", "*"), reply)
    for receiver in ("acme.r0", "acme.r1"):
        await StoredConfigurations(js, names).put(receiver, b'{"url": "https://example.com/"}')
    await Erasures(js, names).request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    await working.erase_due()
    await working.erase_due()
    assert asked == ["acme.r0", "acme.r1", "acme.r1"]
    silent.clear()
    await looked(working)
    assert (await status(js, names)).done_at is not None
    assert asked[3] == "acme.r1"
    await owners.unsubscribe()


async def test_a_tenant_with_many_requests_delays_no_other(js: JetStream, names: Names) -> None:
    erasures = Erasures(js, names)
    for number in range(5):
        await erasures.request("flood", f"e{number}", "ops@host", time.time())
    await erasures.request("acme", "e1", "ops@host", time.time())
    working = eraser(js, names)
    assert await working.erase_due()
    assert await working.erase_due()
    assert (await status(js, names)).done_at is not None
    while await working.erase_due():
        pass
    assert [each async for each in erasures.pending()] == []


async def test_a_request_that_cannot_be_carried_out_delays_no_other(js: JetStream, names: Names) -> None:
    # No node runs that could end this delivery.
    await publish(js, names, "acme.billing", b"secret", {"Angarium-Id": "e1"})
    erasures = Erasures(js, names)
    for event in ("e1", "e2"):
        await erasures.request("acme", event, "ops@host", time.time())
    working = eraser(js, names)
    for _ in range(4):
        await working.erase_due()
    left = [each async for each, _ in erasures.pending()]
    assert [each.event for each in left] == ["e1"]
    assert left[0].waits_for.startswith("no node answers")
