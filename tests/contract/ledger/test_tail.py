"""Following attempts in the journal: each once and in order, over lost connections."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from actors.errors import BadInput, Unavailable
from actors.machine import facts as f
from angarium.access import Access
from angarium.operations.live import journal_pages
from angarium.operations.live import tail as tail_room
from angarium.operations.live.journal_pages import JournalPages, Missed
from angarium.operations.live.tail import Tail, TailedAttempt, TailFilter
from angarium.settings import Settings
from streams.installation.topology import Names
from streams.journal_feed import journal_reader
from streams.lost_tails.marks import Mark
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from tests.support.ledgers import NOW, RECEIVER, JournalWriter, delivered, failed, numbered
from tests.support.waiting import until_true

PATIENCE_S = 30.0


@pytest.fixture(params=["memory", "nats-server"])
def world(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A world that reads the journal, and no ledger."""
    return request.param, ""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_pages, "JOURNAL_POLL_S", 0.01)


def tail(js: JetStream, names: Names, of: str | None = None, **said: Any) -> Tail:
    to = Access(js, Settings(prefix=names.prefix))
    return Tail(
        to,
        TailFilter(about=of, failed=said.pop("failed", False), types=said.pop("types", ())),
        **said,
    )


async def first(found: Tail, count: int) -> list[TailedAttempt | Missed]:
    """The first that it tells."""
    taken: list[TailedAttempt | Missed] = []
    async with asyncio.timeout(PATIENCE_S), aclosing(found.follow()) as each_of:
        async for each in each_of:
            taken.append(each)
            if len(taken) == count:
                break
    return taken


def named(found: list[TailedAttempt | Missed]) -> list[tuple[str, int | None, str]]:
    return [
        (each.receiver, each.sequence, each.verdict)
        if isinstance(each, TailedAttempt)
        else ("", None, each.why)
        for each in found
    ]


async def test_attempts_come_as_they_are_recorded(
    js: JetStream, names: Names, journal: JournalWriter
) -> None:
    await journal.flush(delivered(1))
    seen: list[TailedAttempt | Missed] = []

    async def follow() -> None:
        async with aclosing(tail(js, names).follow()) as found:
            async for each in found:
                seen.append(each)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(PATIENCE_S):
        number = 2
        while not seen:  # What was recorded before it has begun is not shown.
            await journal.flush(failed(number))
            number += 1
            await asyncio.sleep(0.01)
        known = len(seen)
        await journal.flush(delivered(number, attempt=2), f.Throttled(
            receiver=RECEIVER, events=(), at=NOW, attempt=1, status=429, kind="ping", until=NOW + 60
        ), f.DeadLettered(receiver=RECEIVER, events=(numbered(8),), at=NOW, reason="region"),
        f.DeadLettered(receiver=RECEIVER, events=(numbered(9),), at=NOW, reason="expired"))  # fmt: skip

        async def all_seen() -> bool:
            return any(isinstance(each, TailedAttempt) and each.verdict == "dead_lettered" for each in seen)

        await until_true(all_seen)
    following.cancel()
    await asyncio.wait({following})
    assert 1 not in [sequence for _, sequence, _ in named(seen)]
    assert named(seen)[known:][-4:] == [
        (RECEIVER, number, "delivered"), (RECEIVER, None, "throttled"), (RECEIVER, 8, "discarded"),
        (RECEIVER, 9, "dead_lettered"),
    ]  # fmt: skip
    fine = seen[-4]
    assert isinstance(fine, TailedAttempt)
    assert (fine.attempt, fine.status, fine.error, fine.latency_ms, fine.event_id) == (
        2, 200, None, 12.0, f"e{number}",
    )  # fmt: skip


async def test_only_matching_attempts_are_shown(js: JetStream, names: Names, journal: JournalWriter) -> None:
    await journal.flush(
        delivered(1), failed(2), failed(1, receiver="acme.mail"), failed(1, receiver="other.x")
    )
    one = await first(tail(js, names, RECEIVER, since=0.0), 2)
    assert named(one) == [(RECEIVER, 1, "delivered"), (RECEIVER, 2, "failed")]
    tenant = await first(tail(js, names, "acme", since=0.0, failed=True), 2)
    assert named(tenant) == [(RECEIVER, 2, "failed"), ("acme.mail", 1, "failed")]
    assert len(await first(tail(js, names, since=0.0), 4)) == 4
    typed = [numbered(number, type=type_) for number, type_ in enumerate(("order.paid", "user.new", "order"))]
    refund = f.AttemptFailed(
        receiver=RECEIVER,
        events=(numbered(9, type="order.refund"),),
        at=NOW,
        attempt=1,
        status=400,
        answer="no",
    )
    await journal.flush(*(delivered(0, events=(each,)) for each in typed), refund)
    *_, last = found = await first(tail(js, names, since=0.0, types=("order.*",)), 2)
    assert named(found) == [(RECEIVER, 0, "delivered"), (RECEIVER, 9, "failed")]
    assert isinstance(last, TailedAttempt)
    assert (last.type, last.answer) == ("order.refund", "no")


async def test_each_attempt_names_where_to_go_on(js: JetStream, names: Names, journal: JournalWriter) -> None:
    for number in range(1, 7, 2):
        await journal.flush(delivered(number), delivered(number + 1))
    every = await first(tail(js, names, since=0.0), 6)
    for count, each in enumerate(every[:-1], 1):
        assert isinstance(each, TailedAttempt)
        assert await first(tail(js, names, after=each.id), 6 - count) == every[count:]


async def test_purged_facts_are_reported_as_missed(
    js: JetStream, names: Names, journal: JournalWriter
) -> None:
    begin = await journal.flush(delivered(1))
    await journal.flush(delivered(2))
    last = await journal.flush(delivered(3))
    await js.purge(names.journal, last)
    assert named(await first(tail(js, names, after=f"{begin}-0"), 2)) == [
        ("", None, f"messages {begin} to {last - 1} of the journal were purged"),
        (RECEIVER, 3, "delivered"),
    ]


async def test_a_tail_that_does_not_follow_ends_with_the_journal(
    js: JetStream, names: Names, journal: JournalWriter
) -> None:
    assert [each async for each in tail(js, names, since=0.0).follow(ends=True)] == []
    await journal.flush(delivered(1), failed(2))
    async with asyncio.timeout(PATIENCE_S):
        found = [each async for each in tail(js, names, since=0.0).follow(ends=True)]
    assert named(found) == named(await first(tail(js, names, since=0.0), 2))


async def test_the_tail_continues_when_nats_is_back(
    js: JetStream, names: Names, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        await journal.flush(delivered(number))
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 1)
    read, asked = JetStream.read, iter(range(1000))

    async def failing_every_other_time(self: JetStream, *which: Any) -> Page:
        if next(asked) % 2:
            raise Unavailable("NATS is away")
        return await read(self, *which)

    monkeypatch.setattr(JetStream, "read", failing_every_other_time)
    assert named(await first(tail(js, names, since=0.0), 3)) == [
        (RECEIVER, number, "delivered") for number in (1, 2, 3)
    ]


async def test_a_journal_that_was_recreated_is_followed_from_its_beginning(
    js: JetStream, names: Names, journal: JournalWriter
) -> None:
    await journal.flush(delivered(1))
    info = await js.stream_info(names.journal)
    assert info is not None
    found: AsyncIterator[TailedAttempt | Missed]
    async with asyncio.timeout(PATIENCE_S), aclosing(tail(js, names, since=0.0).follow()) as found:
        assert named([await anext(found)]) == [(RECEIVER, 1, "delivered")]
        await js.request(f"$JS.API.STREAM.DELETE.{names.journal}", b"")
        await js.stream_create(info.config)
        await journal.flush(delivered(7))
        js.connection_changed(True)  # It came back with it.
        lost = await anext(found)
        assert isinstance(lost, Missed)
        assert "was recreated" in lost.why
        assert named([await anext(found)]) == [(RECEIVER, 7, "delivered")]


async def test_nothing_is_shown_that_was_read_of_a_journal_recreated_after_the_comparison(
    js: JetStream, names: Names, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await journal.flush(delivered(1))
    info = await js.stream_info(names.journal)
    assert info is not None
    read, asked = journal_reader.JournalReader.read, iter(range(1000))

    async def recreated_before_the_second(self: journal_reader.JournalReader, *which: Any) -> Any:
        if next(asked) == 1:
            await js.request(f"$JS.API.STREAM.DELETE.{names.journal}", b"")
            await js.stream_create(info.config)
            await journal.flush(delivered(6))
            await journal.flush(delivered(7))
            js.connection_changed(True)
        return await read(self, *which)

    monkeypatch.setattr(journal_reader.JournalReader, "read", recreated_before_the_second)
    *_, lost, six, seven = await first(tail(js, names, since=0.0), 4)
    assert isinstance(lost, Missed)
    assert named([six, seven]) == [(RECEIVER, 6, "delivered"), (RECEIVER, 7, "delivered")]


async def test_a_journal_that_lost_its_tail_is_followed_from_what_is_new(
    js: JetStream, names: Names, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        await journal.flush(delivered(number))
    pages = JournalPages(js, names)
    monkeypatch.setattr(tail_room, "JournalPages", lambda *_: pages)
    following = tail(js, names, since=0.0)
    found: AsyncIterator[TailedAttempt | Missed]
    async with asyncio.timeout(PATIENCE_S), aclosing(following.follow()) as found:
        told = [await anext(found) for _ in range(5)]
        assert [sequence for _, sequence, _ in named(told)] == [1, 2, 3, 4, 5]
        # It has read 100 more messages, which the server lost.
        read_to = pages.read_to
        pages.read_to = replace(read_to, mark=Mark(position=read_to.position + 100, stored_at=time.time()))
        await journal.flush(delivered(6))
        js.connection_changed(True)  # It came back with it.
        lost = await anext(found)
        assert isinstance(lost, Missed)
        assert "it ends at" in lost.why
        assert named([await anext(found)]) == [(RECEIVER, 6, "delivered")]


async def test_no_more_is_read_than_is_taken(
    js: JetStream, names: Names, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 6):
        await journal.flush(delivered(number))
    monkeypatch.setattr(journal_reader, "READ_MESSAGES_MAX", 2)
    read, asked = JetStream.read, []

    async def counted(self: JetStream, *which: Any) -> Page:
        asked.append(which)
        return await read(self, *which)

    monkeypatch.setattr(JetStream, "read", counted)
    async with asyncio.timeout(PATIENCE_S), aclosing(tail(js, names, since=0.0).follow()) as found:
        await anext(found)
        await anext(found)
        assert len(asked) == 1
        await anext(found)
        assert len(asked) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"of": "a.b.c"}, {"of": "*"}, {"after": "7"}, {"after": "x-1"}, {"types": ("a..b",)}],
)
async def test_a_filter_that_cannot_be_followed_is_refused(
    js: JetStream, names: Names, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadInput):
        tail(js, names, **wrong)
