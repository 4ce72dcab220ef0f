"""The ledger's writer during outages of its database."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from angarium.ledger import follow as following
from angarium.ledger.store import LedgerAway
from angarium.settings import Settings
from tests.unit.worlds.virtual_time import in_virtual_time


@in_virtual_time
async def test_an_outage_of_the_database_is_one_line_and_its_end_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    there, opened = [True, False, False, False, True], 0

    @asynccontextmanager
    async def connected(*_: Any, **__: Any) -> AsyncIterator[None]:
        yield None

    @asynccontextmanager
    async def store(*_: Any) -> AsyncIterator[None]:
        nonlocal opened
        opened += 1
        if not there.pop(0):
            raise LedgerAway("connection refused")
        yield None

    class Writing:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def run(self) -> None:
            await asyncio.sleep(5)
            if there:
                raise LedgerAway("the connection was closed")
            await asyncio.Event().wait()

    monkeypatch.setattr(following, "open_jetstream", connected)
    monkeypatch.setattr(following, "open_for_writing", store)
    monkeypatch.setattr(following, "Writer", Writing)
    task = asyncio.ensure_future(following.follow(Settings()))
    await asyncio.sleep(60)
    task.cancel()
    assert opened == 5
    assert caplog.messages == ["ledger.away", "ledger.back"]
