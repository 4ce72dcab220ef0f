"""Floods of due events: tenants take turns, and those of other partitions cost nothing."""

import json
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from streams.installation.partitions import partition_of
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from streams.timed import due_publisher
from streams.timed.due_publisher import DuePublisher
from tests.contract.support.jetstream_proxy import Call, JetStreamProxy
from tests.contract.support.servers import Server, opened
from tests.contract.timed.publishing import stored_entry
from tests.support.installation import SHARDS
from tests.support.waiting import until

FLOOD, OTHER = [name for n in range(100) if partition_of(name := f"a{n}", SHARDS) == 0][:2]
FOREIGN = [name for n in range(100) if partition_of(name := f"f{n}", SHARDS) != 0]
FIRST_SECOND, SECONDS, EACH = 1_000, 6, 20
NEW = {"Angarium-Published": f"{time.time():.3f}"}


class RecordedJetStream(JetStreamProxy):
    """Records the tenants whose entries were asked for, and those whose due events were published."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.asked: set[str] = set()
        self.opened: list[str] = []

    async def around(self, method: str, call: Call, *args: Any, **options: Any) -> Any:
        match method, args:
            case "request", (_, bytes(body), *_) if b".later." in body:
                self.asked.add(json.loads(body)["next_by_subj"].split(".")[-3])
            case "publish", (str(subject), *_):
                self.opened.append(subject.split(".")[2])
            case _:
                pass
        return await call()


@pytest.fixture
async def recorded(server: Server, names: Names) -> AsyncIterator[RecordedJetStream]:
    async with opened(server, RecordedJetStream) as js:
        yield js


async def open_all(js: RecordedJetStream, names: Names, expected: int) -> list[str]:
    """Open so many entries by a clock that is a second ahead each time it is read; returns their tenants."""
    clock, broken = count(FIRST_SECOND), list[str]()
    publisher = DuePublisher(
        js, names, 0,
        wall=lambda: float(next(clock)), may_publish=lambda: True, tenants=lambda: [FLOOD, OTHER, *FOREIGN],
        partitions=SHARDS, on_broken=broken.append,
    )  # fmt: skip
    publisher.start()
    await until(lambda: len(js.opened) >= expected or bool(broken))
    await publisher.stop()
    assert broken == []
    return js.opened


async def test_a_flood_of_many_seconds_does_not_hold_up_another_tenant(
    js: JetStream, names: Names, recorded: RecordedJetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tenant has events in the last second, behind those of the flood."""
    monkeypatch.setattr(due_publisher, "SPLIT_AFTER", 2)
    monkeypatch.setattr(due_publisher, "TURN_MAX", 2)
    for second in range(FIRST_SECOND, FIRST_SECOND + SECONDS):
        for number in range(EACH):
            await stored_entry(js, names, second, FLOOD, f"e{second}-{number}", number + 1, **NEW)
    for number in range(EACH):
        await stored_entry(js, names, FIRST_SECOND + SECONDS - 1, OTHER, f"o{number}", number + 1, **NEW)
    tenants = await open_all(recorded, names, (SECONDS + 1) * EACH)
    last = len(tenants) - 1 - tenants[::-1].index(OTHER)
    assert tenants.count(OTHER) == EACH
    assert last < (SECONDS + 1) * EACH / 2


async def test_tenants_of_other_partitions_are_not_asked_for(
    js: JetStream, names: Names, recorded: RecordedJetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_publisher, "SPLIT_AFTER", 2)
    monkeypatch.setattr(due_publisher, "TURN_MAX", 2)
    for number in range(EACH):
        await stored_entry(js, names, FIRST_SECOND, FLOOD, f"e{number}", number + 1, **NEW)
    await open_all(recorded, names, EACH)
    assert recorded.asked == {"*", FLOOD, OTHER}
