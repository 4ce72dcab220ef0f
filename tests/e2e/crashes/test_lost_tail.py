"""A nats-server restarts without the last messages of its streams, and producers publish again.

That is what a loss of power leaves: older messages, and consumers that remember the newer ones.
"""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from streams.installation.partitions import partition_of
from streams.journal.envelope import decode_flush
from streams.journal.refusal import read_recorded_loss
from streams.nats.answers import Stored
from tests.support.fleet.fleet import SHARDS, Fleet, names, shard
from tests.support.fleet.load import publish
from tests.support.processes.commands import Terminal

DIRECT, ANNOUNCED = "t.direct", "u.announced"


async def announce(fleet: Fleet, event_id: str) -> None:
    answer = await fleet.js.publish(names.publish_event("u", "order"), b"{}", {"Nats-Msg-Id": event_id})
    assert isinstance(answer, Stored), answer


async def publish_both(fleet: Fleet, ids: list[str]) -> None:
    for each in ids:
        await publish(fleet.js, DIRECT, f"d:{each}")
        await announce(fleet, f"a:{each}")


def came(fleet: Fleet, ids: list[str]) -> bool:
    got = {each.event_id for receiver in (DIRECT, ANNOUNCED) for each in fleet.sink.arrivals[receiver]}
    return got >= {f"{way}:{each}" for way in "da" for each in ids}


async def has_recorded(fleet: Fleet, count: int) -> bool:
    """True if the journal has this number of events, and those that were sent directly."""
    marks = []
    for number in (shard(DIRECT), partition_of("u", SHARDS)):
        message = await fleet.js.last_message(names.journal, names.journal_of(number))
        assert message is not None
        marks.append(decode_flush(message.data, "the journal").marks)
    return marks[0].deliveries.position > count and marks[1].events.position == count


def messages(directory: Path, stream: str) -> Path:
    [found] = directory.glob(f"nats/**/streams/{stream}/msgs")
    return found


@pytest.mark.parametrize("lives", [True, False], ids=["under a node", "between nodes"])
async def test_a_lost_tail_is_refused_until_it_is_accepted(fleet: Fleet, tmp_path: Path, lives: bool) -> None:
    """Every event acknowledged after the loss is delivered in the end, and no number names two events."""
    await fleet.configure([DIRECT, ANNOUNCED])
    node = await fleet.start_ready()
    await publish_both(fleet, old := [f"old{number}" for number in range(10)])
    await fleet.until(lambda: came(fleet, old), "what came first was delivered")
    await fleet.server.stop()
    lost_of = [messages(tmp_path, each) for each in (names.deliveries, names.events)]
    for number, path in enumerate(lost_of):
        shutil.copytree(path, tmp_path / f"older{number}")
    await fleet.server.start()
    await publish_both(fleet, lost := [f"lost{number}" for number in range(20)])
    await fleet.until(lambda: came(fleet, lost), "what will be lost was delivered")
    await fleet.until_true(lambda: has_recorded(fleet, 30), "what will be lost is recorded")
    if not lives:
        await node.kill()

    await fleet.server.stop()
    for number, path in enumerate(lost_of):
        shutil.rmtree(path)
        shutil.copytree(tmp_path / f"older{number}", path)
    await fleet.server.start()
    await publish_both(fleet, new := [f"new{number}" for number in range(40)])
    if not lives:
        await fleet.start()
    terminal = Terminal(tmp_path, fleet.server.url)
    terminal.environment["ANGARIUM_SHARDS"] = str(SHARDS)

    async def refused() -> bool:
        """Each shard has one recorded loss: the one that was found first."""
        concerned = (shard(DIRECT), partition_of("u", SHARDS))
        return all([await read_recorded_loss(fleet.js, names, each) is not None for each in concerned])

    await fleet.until_true(refused, "both losses are recorded")
    findings = msgspec.json.decode((await asyncio.to_thread(terminal.run, "doctor", "--json")).stdout)
    assert any("refused (" in (text := each["text"]) and "ANGARIUM_" in text for each in findings), findings
    assert not any(each.event_id.endswith("new39") for each in fleet.sink.arrivals[DIRECT])

    done = await asyncio.to_thread(terminal.json, "repair", "--accept-loss", "all", "--yes")
    assert {gap["stream"] for each in done for gap in each["lost"]} == {names.deliveries, names.events}
    await fleet.until(lambda: came(fleet, new), "what came after the loss was delivered")
    for receiver in (DIRECT, ANNOUNCED):
        numbers: dict[int, str] = {}
        for each in fleet.sink.arrivals[receiver]:
            assert numbers.setdefault(each.sequence, each.event_id) == each.event_id
    await fleet.hears(fleet.nodes["one"], "shard.claimed")
    assert all("shard.refused" in each for each in node.complaints)
    node.complaints.clear()
