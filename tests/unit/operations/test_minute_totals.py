"""Counts of each minute, from the journal."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.machine import facts as f
from actors.machine.numbering import Numbered
from angarium.operations.live.minute_totals import JournalMinutes, SettledMinute
from streams.installation.topology import Names
from streams.journal_feed.recent_flushes import RecentFlush, RecentFlushes

NOW = 1_700_000_040.0
MINUTE = int(NOW // 60)


def delivered(receiver: str, sequence: int) -> f.Delivered:
    event = Numbered(sequence=sequence, position=sequence, id=f"e-{sequence}", stored_at=NOW)
    return f.Delivered(receiver=receiver, at=NOW, events=(event,), attempt=1, latency_ms=1.0)


@pytest.fixture
def minutes(monkeypatch: pytest.MonkeyPatch) -> JournalMinutes:
    """Counts of acme from a journal of 2,000 flushes: each has 20 facts of acme and one of another tenant."""
    facts = (*(delivered("acme.billing", number) for number in range(1, 21)), delivered("beta.mail", 1))
    flushes = [RecentFlush(NOW, facts)] * 2000

    async def read_new(_: RecentFlushes) -> list[RecentFlush]:
        return flushes

    monkeypatch.setattr(RecentFlushes, "read_new", read_new)
    return JournalMinutes(cast("Any", SimpleNamespace(js=None, names=Names())), "acme")


async def test_a_tenant_sees_its_own_events(minutes: JournalMinutes) -> None:
    assert await minutes.read(NOW) == {MINUTE: SettledMinute(delivered=40_000)}


async def test_others_get_their_turns_while_a_journal_is_counted(minutes: JournalMinutes) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    await minutes.read(NOW)
    others.cancel()
    assert turns >= 5
