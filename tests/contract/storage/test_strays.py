"""Messages that belong to no shard: nats-server stores a subject with a wildcard without its transform."""

import asyncio
from itertools import cycle

import pytest

from actors.ids import stable_hash
from angarium.node.app import joined_node
from angarium.operations.installation.doctor.routing import check_strays
from streams.clock import SystemTime
from streams.installation.topology import Names
from streams.nats.answers import Stored, StreamInfo
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from streams.nats.wire import Wire
from streams.nats.wire_names import DEAD_PROBLEM, DEAD_REASON
from streams.storage import strays
from streams.storage.purge import ANY_POSITION
from streams.storage.strays import bury_stray_deliveries, bury_stray_events, count_stray_events
from tests.contract.support.full_streams import (
    CONFIGURATIONS,
    EVENTS,
    PAUSED,
    Sender,
    install_with_little_room,
    publish,
)
from tests.support.installation import SHARDS, installation, node_settings, shard
from tests.support.installation import publish as publish_one
from tests.support.waiting import until_true


@pytest.fixture
async def names(js: JetStream, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Names:
    monkeypatch.setattr(strays, "COUNT_AGAIN_AFTER_S", 0.01)
    return await install_with_little_room(js, prefix, monkeypatch)


@pytest.mark.parametrize("receiver", ["acme.*", "acme.>", "*.billing", "*.*"])
async def test_a_subject_with_a_wildcard_is_stored_as_it_came(
    js: JetStream, names: Names, receiver: str
) -> None:
    await publish_one(js, names, PAUSED)
    position = await publish_one(js, names, receiver)
    message = await js.message(names.deliveries, position)
    assert message is not None
    assert message.subject == names.publish_to(receiver)
    assert names.shard_and_receiver(message.subject) is None
    assert await js.subjects(names.deliveries, names.publish_to("*.*")) == {message.subject: 1}


async def test_a_subject_with_a_wildcard_does_not_end_all_maintenance(
    wire: Wire, js: JetStream, names: Names
) -> None:
    """The deliveries have room for some 90 events: room has to be made while such a message is sampled."""
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        await publish(js, names, PAUSED, "first")
        await publish_one(js, names, "acme.*")
        async with asyncio.timeout(60):
            for number, receiver in zip(range(EVENTS), cycle(CONFIGURATIONS)):
                await publish(js, names, receiver, f"e{number}")


@pytest.mark.parametrize("others", [0, 300])
@pytest.mark.parametrize("receiver", ["acme.*", "acme.>", "*.billing", ">.billing", "*.>", "2.>"])
async def test_a_stray_delivery_becomes_a_dead_letter_and_no_other_goes(
    js: JetStream, names: Names, receiver: str, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The subject of the stray, taken for a filter, means others, too."""
    for number in range(others):
        await publish_one(js, names, f"acme.r{number}")
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    position = await publish_one(js, names, receiver, b"x", {"traceparent": traceparent})
    await publish_one(js, names, "acme.last")
    await bury_stray_deliveries(js, names)
    assert await js.message(names.deliveries, position) is None
    assert (await stream_info(js, names.deliveries)).messages == others + 1
    [letter] = (await js.read(names.dead_letters, names.dead("*.*"), 1)).messages
    tenant = "acme" if receiver.startswith("acme") else f"_{stable_hash(receiver.split('.')[0])}"
    assert letter.subject == names.dead(f"{tenant}._events")
    assert letter.data == b"x"
    assert letter.headers[DEAD_REASON] == "malformed"
    assert receiver in letter.headers[DEAD_PROBLEM]
    (told,) = [each.__dict__ for each in caplog.records if each.message == "stray.buried"]
    assert told["trace_id"] == traceparent.split("-")[1]


async def test_a_limited_number_of_strays_is_buried_in_a_round(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strays, "STRAYS_BURIED_MAX", 3)
    for number in range(5):
        await publish_one(js, names, "acme.*" if number % 2 else "acme.>")
        await js.publish(names.publish_event("acme", "*"), b"")
    for letters in (6, 10):
        await bury_stray_deliveries(js, names)
        await bury_stray_events(js, names)
        assert (await stream_info(js, names.dead_letters)).messages == letters
    assert (await stream_info(js, names.deliveries)).messages == 0
    assert (await stream_info(js, names.events)).messages == 0


@pytest.mark.parametrize("receiver", ["umbra.*", "umbra.>"])
async def test_a_flood_of_strays_costs_other_tenants_no_event(
    wire: Wire, js: JetStream, names: Names, receiver: str
) -> None:
    """The strays fill the deliveries while 20 events of another tenant wait."""
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        for number in range(20):
            await publish(js, names, PAUSED, f"e{number}")
        for number in range(300):
            await publish(js, names, receiver, f"s{number}")

        async def all_are_buried() -> bool:
            return await js.subjects(names.dead_letters, names.dead("umbra._events")) == {
                names.dead("umbra._events"): 300
            }

        await until_true(all_are_buried)
    assert await js.subjects(names.dead_letters, names.dead(PAUSED)) == {}
    assert await js.subjects(names.deliveries, names.deliveries_to(PAUSED)) == {
        names.delivery(shard(PAUSED), PAUSED): 20
    }


async def test_events_that_come_after_the_search_for_strays_are_kept(js: JetStream, names: Names) -> None:
    for type_ in ("*", "order.created"):
        await js.publish(names.publish_event("acme", type_), b"{}")
    assert await bury_stray_events(js, names) == 3


async def test_everything_is_kept_while_the_letter_of_a_stray_cannot_be_stored(
    js: JetStream, names: Names
) -> None:
    await js.publish(names.publish_event("acme", "*"), b"{}")
    letters = await stream_info(js, names.dead_letters)
    await js.stream_update(letters.config | {"max_bytes": 1})
    assert await bury_stray_events(js, names) == 0
    assert (await stream_info(js, names.events)).messages == 1


async def test_nothing_is_kept_for_more_strays_than_are_buried_in_a_round(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer could fill the streams with them."""
    monkeypatch.setattr(strays, "STRAYS_BURIED_MAX", 1)
    for _ in range(2):
        await js.publish(names.publish_event("acme", "*"), b"{}")
    assert await bury_stray_events(js, names) == ANY_POSITION


async def test_stray_events_are_buried_or_counted(js: JetStream, names: Names) -> None:
    """One of a type with several tokens has as many tokens as others, so no filter finds it."""
    for type_ in ("order.created", "*", "order.*", "order.created"):
        assert isinstance(await js.publish(names.publish_event("acme", type_), b"{}"), Stored)
    assert await count_stray_events(js, names, SHARDS) == 2
    await bury_stray_events(js, names)
    [letter] = (await js.read(names.dead_letters, names.dead("acme._events"), 1)).messages
    assert letter.headers[DEAD_REASON] == "malformed"
    assert (await stream_info(js, names.events)).messages == 3
    assert await count_stray_events(js, names, SHARDS) == 1
    [finding] = await check_strays(js, installation(names.prefix))
    assert finding.text.startswith("1 event is in no partition")


async def test_all_stray_events_of_a_known_tenant_are_buried(js: JetStream, names: Names) -> None:
    """Their subjects have the tenant where others have a partition. A wildcard would find all events."""
    for type_ in ("order.created", "order.*", "a.b.c.>", "order.created"):
        assert isinstance(await js.publish(names.publish_event("acme", type_), b"{}"), Stored)
    assert await bury_stray_events(js, names, {"acme", "*", "umbra"}) == 5
    assert (await stream_info(js, names.dead_letters)).messages == 2
    assert (await stream_info(js, names.events)).messages == 2
    assert await count_stray_events(js, names, SHARDS) == 0


async def test_the_subjects_of_one_tenants_strays_are_not_listed(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may invent any number of them."""
    listed, subjects_and_info = list[str](), js.subjects_and_info

    async def noted(stream: str, subject: str) -> tuple[list[str], StreamInfo]:
        listed.append(subject)
        return await subjects_and_info(stream, subject)

    async def never(stream: str, subject: str) -> dict[str, int]:
        raise AssertionError(f"{subject} is listed")

    monkeypatch.setattr(js, "subjects_and_info", noted)
    monkeypatch.setattr(js, "subjects", never)
    await js.publish(names.publish_event("acme", "order.*"), b"{}")
    await bury_stray_events(js, names, {"acme"})
    assert set(listed) == {names.publish_event("*", "*")}
    assert (await stream_info(js, names.events)).messages == 0


async def test_accepted_strays_become_dead_letters_while_a_node_runs(
    wire: Wire, js: JetStream, names: Names
) -> None:
    async with joined_node(wire, node_settings(names), SystemTime(), Sender()) as node:
        await node.until_ready()
        await publish_one(js, names, "acme.*")
        await js.publish(names.publish_event("acme", ">"), b"{}")

        async def both_are_buried() -> bool:
            return len((await js.read(names.dead_letters, names.dead("acme._events"), 1)).messages) == 2

        await until_true(both_are_buried)
