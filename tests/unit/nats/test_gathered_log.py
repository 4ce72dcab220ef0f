"""Log lines with one cause: one line with their count, however many parts notice it."""

import asyncio
import logging
from typing import Any

import pytest

from streams.nats.gathered_log import GATHERED_FOR_S, GatheredLog
from tests.unit.worlds.virtual_time import in_virtual_time

LOG = logging.getLogger("streams.test")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, ...]]:
    lines = (record.__dict__ for record in caplog.records)
    return [(line["levelname"], line["consumer"], line["why"], line.get("count")) for line in lines]


def happen(gathered: GatheredLog, numbers: range, why: str, level: int = logging.INFO) -> None:
    for number in numbers:
        gathered(LOG, level, "reader.gap", why.format(number), consumer=f"shard-{number}-7")


@in_virtual_time
async def test_many_for_one_reason_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gathered = GatheredLog(lambda: False)
    happen(gathered, range(100), "no heartbeat for 3 s")
    await asyncio.sleep(1.5)
    happen(gathered, range(100, 128), "no heartbeat for 3 s")
    assert not told(caplog)
    await asyncio.sleep(GATHERED_FOR_S)
    assert told(caplog) == [("INFO", "shard-0-7", "no heartbeat for 3 s", 128)]
    happen(gathered, range(1), "no heartbeat for 3 s")
    await asyncio.sleep(GATHERED_FOR_S)
    assert told(caplog)[1:] == [("INFO", "shard-0-7", "no heartbeat for 3 s", None)]


@in_virtual_time
async def test_reasons_that_differ_in_numbers_alone_are_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gathered = GatheredLog(lambda: False)
    happen(gathered, range(3, 6), "CONSUMER.CREATE.shard-{}-7: no answer in time", logging.WARNING)
    happen(gathered, range(1), "the lease has expired", logging.WARNING)
    gathered.flush()
    assert told(caplog) == [
        ("WARNING", "shard-3-7", "CONSUMER.CREATE.shard-3-7: no answer in time", 3),
        ("WARNING", "shard-0-7", "the lease has expired", None),
    ]
    await asyncio.sleep(GATHERED_FOR_S)
    assert len(told(caplog)) == 2


@in_virtual_time
async def test_only_information_is_left_out_if_the_connection_was_lost_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    is_lost = False
    gathered = GatheredLog(lambda: is_lost)
    happen(gathered, range(2), "no heartbeat for 3 s")
    happen(gathered, range(2), "the lease has expired", logging.WARNING)
    is_lost = True
    await asyncio.sleep(GATHERED_FOR_S)
    assert told(caplog) == [("WARNING", "shard-0-7", "the lease has expired", 2)]
