"""Live attempts over HTTP: each once and in order, only to clients that may see them, in bounded memory."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from actors.machine import facts as f
from angarium.api import api_state, bounded_protocol, server
from angarium.api.background import tail_streams
from angarium.api.background.spaced_work import SpacedWork
from angarium.api.background.tail_streams import Tails, TailStream
from angarium.operations.live import journal_pages
from angarium.operations.live.journal_pages import AttemptPosition
from angarium.operations.live.tail import TailFilter
from angarium.operations.tokens.revoke import revoke
from streams.buckets.api_tokens import Token
from streams.journal_feed.journal_reader import JournalReader
from streams.nats.answers import Page
from streams.nats.jetstream import JetStream
from tests.edge.api.conftest import Api, problem
from tests.support.ledgers import JournalWriter, delivered, failed, numbered
from tests.support.plain_http import plain_client
from tests.support.waiting import until

TAIL = "/v1/tenants/acme/tail"
PATIENCE_S = 30.0


@pytest.fixture
def journal(api: Api) -> JournalWriter:
    return JournalWriter(api.js, api.names)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_pages, "JOURNAL_POLL_S", 0.01)


class Events:
    """The events of a stream, as they come."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id = ""
        self._lines = answer.aiter_lines()

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event, and what it says; comments and ids alone are passed over."""
        kind, data = "", ""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                match name:
                    case "id":
                        self.last_id = value
                    case "event":
                        kind = value
                    case "data":
                        data = value
                    case "" if data:
                        return kind, json.loads(data)
        return "closed", {}

    async def numbers(self, count: int) -> list[tuple[str, int]]:
        """The receivers and numbers of the next attempts."""
        found = [await self.next() for _ in range(count)]
        assert all(kind == "attempt" for kind, _ in found), found
        return [(said["receiver"], said["sequence"]) for _, said in found]

    async def begun(self) -> "Events":
        """Return when it has begun: what is recorded from now on is told."""
        async with asyncio.timeout(PATIENCE_S):
            async for line in self._lines:
                if line.startswith("id: "):
                    self.last_id = line.removeprefix("id: ")
                    return self
        raise AssertionError("it ends at once")


@asynccontextmanager
async def tailing(client: httpx.AsyncClient, after: str = "", **query: Any) -> AsyncIterator[Events]:
    headers = {"last-event-id": after} if after else {}
    async with client.stream("GET", TAIL, params=query, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = await Events(answer).begun()
        yield events


def have_caught_up(tails: Tails) -> bool:
    """True if all streams share the one reading."""
    return all(each.catching_up is None or each.catching_up.done() for each in tails)


async def test_attempts_come_as_they_are_recorded(api: Api, journal: JournalWriter) -> None:
    await journal.flush(delivered(1))
    async with await api.client("acme", ["read"]) as client, tailing(client) as events:
        await journal.flush(failed(2, events=(numbered(2, type="order.paid"),), answer="no database"))
        kind, said = await events.next()
    assert kind == "attempt"
    assert said.items() >= {
        "receiver": "acme.billing", "sequence": 2, "event_id": "e2", "type": "order.paid",
        "verdict": "failed", "status": 500, "attempt": 1, "answer": "no database", "latency_ms": 12.0,
    }.items()  # fmt: skip
    assert said["id"] == events.last_id


async def test_each_stream_gets_what_it_wants_of_its_own_tenant(api: Api, journal: JournalWriter) -> None:
    async with (
        await api.client("acme", ["read"]) as client,
        tailing(client) as every,
        tailing(client, receiver="mail") as mail,
        tailing(client, failed=True) as bad,
        tailing(client, type=["order.*", "user.>"]) as typed,
    ):
        await journal.flush(
            delivered(1, receiver="other.billing"), delivered(1, receiver="acme2.billing"), delivered(1),
            failed(2, receiver="acme.mail"), delivered(3, events=(numbered(3, type="order.paid"),)),
        )  # fmt: skip
        await journal.flush(failed(4, receiver="acme.mail", events=(numbered(4, type="user.new"),)))
        billing, mailed = ("acme.billing", 1), ("acme.mail", 2)
        ordered, created = ("acme.billing", 3), ("acme.mail", 4)
        assert await every.numbers(4) == [billing, mailed, ordered, created]
        assert await mail.numbers(2) == [mailed, created]
        assert await bad.numbers(2) == [mailed, created]
        assert await typed.numbers(2) == [ordered, created]


async def test_a_stream_continues_exactly_where_it_was(api: Api, journal: JournalWriter) -> None:
    """A stream may continue between the events of one fact, and while the shared reader is far ahead."""
    two = f.DeadLettered(receiver="acme.billing", events=(numbered(3), numbered(4)), at=1.0, reason="expired")
    async with await api.client("acme", ["read"]) as client, tailing(client) as first:
        await journal.flush(delivered(1), delivered(2))
        await journal.flush(delivered(1, receiver="other.billing"), two, delivered(5))
        await journal.flush(delivered(6))
        places = [first.last_id]
        for number in range(1, 7):
            assert await first.numbers(1) == [("acme.billing", number)]
            places.append(first.last_id)
        for told, place in enumerate(places):
            async with tailing(client, place) as again:
                rest = [*range(told + 1, 7), *range(100, 100 + told)]
                assert await again.numbers(6) == [("acme.billing", each) for each in rest]
                await journal.flush(delivered(100 + told))
                assert await again.numbers(1) == [("acme.billing", 100 + told)]


async def test_a_stream_that_catches_up_takes_part_in_the_one_reading_without_a_gap(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "READ_BYTES", 1024)
    monkeypatch.setattr(tail_streams, "BUFFER_MAX", 2048)
    async with await api.client("acme", ["read"]) as client, tailing(client) as first:
        place = first.last_id
        for number in range(1, 101):
            await journal.flush(delivered(number))
        assert len(await first.numbers(100)) == 100
        async with tailing(client, place) as again:
            writing = asyncio.create_task(_flush_all(journal, range(101, 201)))
            assert [number for _, number in await again.numbers(200)] == list(range(1, 201))
            await writing
            await until(lambda: have_caught_up(api.state.tails))


async def test_a_stream_that_is_ahead_of_the_one_reading_gets_nothing_twice(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers: list[JournalReader] = []
    may_read, waits = asyncio.Event(), asyncio.Event()
    may_read.set()
    read = JournalReader.read

    async def read_late(self: JournalReader, *which: Any) -> Any:
        readers.append(self)
        if self is readers[0] and not may_read.is_set():
            waits.set()
            await may_read.wait()
        return await read(self, *which)

    monkeypatch.setattr(JournalReader, "read", read_late)
    async with await api.client("acme", ["read"]) as client, tailing(client) as live:
        place = live.last_id
        await journal.flush(delivered(1))
        assert await live.numbers(1) == [("acme.billing", 1)]
        may_read.clear()
        await waits.wait()
        await journal.flush(delivered(2))
        async with tailing(client, place) as ahead:
            assert await ahead.numbers(2) == [("acme.billing", 1), ("acme.billing", 2)]
            await until(lambda: have_caught_up(api.state.tails))
            may_read.set()
            await journal.flush(delivered(3))
            assert await ahead.numbers(1) == [("acme.billing", 3)]
        assert await live.numbers(2) == [("acme.billing", 2), ("acme.billing", 3)]


async def test_streams_that_go_on_from_long_ago_take_turns(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "READ_BYTES", 1024)
    monkeypatch.setattr(tail_streams, "CATCH_UP_PAUSE_S", 0.0)
    taken: list[str] = []
    turn = SpacedWork.turn

    def counted(self: SpacedWork, client: str) -> AbstractAsyncContextManager[None]:
        taken.append(client)
        return turn(self, client)

    monkeypatch.setattr(SpacedWork, "turn", counted)
    begin = await journal.flush(delivered(1))
    for number in range(2, 41):
        await journal.flush(delivered(number))
    async with await api.client("acme", ["read"]) as client, tailing(client, f"{begin}-0") as events:
        assert len(await events.numbers(40)) == 40
    assert len(taken) > 3
    assert set(taken) == {"acme"}


async def _flush_all(journal: JournalWriter, numbers: range) -> None:
    for number in numbers:
        await journal.flush(delivered(number))


async def test_purged_facts_are_reported_as_missed(api: Api, journal: JournalWriter) -> None:
    begin = await journal.flush(delivered(1))
    last = await journal.flush(delivered(2))
    await journal.flush(delivered(3))
    await api.js.purge(api.names.journal, last + 1)
    async with await api.client("acme", ["read"]) as client:
        async with tailing(client, f"{begin}-1") as events:
            kind, said = await events.next()
            assert (kind, said["why"]) == (
                "missed", f"messages {begin} to {last} of the journal were purged"
            )  # fmt: skip
            assert await events.numbers(1) == [("acme.billing", 3)]
        async with tailing(client, "4711-1") as events:
            kind, said = await events.next()
            assert (kind, said["why"]) == (
                "missed", "the journal ends before 4711-1: it is not the one that had it"
            )  # fmt: skip
            await journal.flush(delivered(4))
            assert await events.numbers(1) == [("acme.billing", 4)]


async def test_a_recreated_journal_is_reported_and_followed_from_its_beginning(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 5):
        await journal.flush(delivered(number))
    info = await api.js.stream_info(api.names.journal)
    assert info is not None
    goes_on, stands = asyncio.Event(), asyncio.Event()
    goes_on.set()
    read = JournalReader.read

    async def standing(self: JournalReader, *which: Any) -> Any:
        if not goes_on.is_set():
            stands.set()
            await goes_on.wait()
        return await read(self, *which)

    monkeypatch.setattr(JournalReader, "read", standing)
    async with await api.client("acme", ["read"]) as client, tailing(client) as events:
        goes_on.clear()
        await stands.wait()
        await api.js.request(f"$JS.API.STREAM.DELETE.{api.names.journal}", b"")
        await api.js.stream_create(info.config)
        await journal.flush(delivered(7))
        api.state.access.js.connection_changed(True)  # It came back with it.
        goes_on.set()
        kind, said = await events.next()
        assert kind == "missed"
        assert "was recreated" in said["why"]
        assert await events.numbers(1) == [("acme.billing", 7)]


async def test_a_quiet_stream_gets_a_comment_and_its_place(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "HEARTBEAT_EVERY_S", 0.02)
    text = ""
    async with (
        asyncio.timeout(PATIENCE_S),
        await api.client("acme", ["read"]) as client,
        client.stream("GET", TAIL) as answer,
    ):
        place = await journal.flush(delivered(1, receiver="other.billing"))
        async for piece in answer.aiter_text():
            text += piece
            if f":\nid: {place + 1}-0\n\n" in text:
                break
    assert "data" not in text


async def test_the_journal_is_read_once_for_all_streams_and_not_at_all_without_one(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = JetStream.read, list[int]()
    stop, stopped = JournalReader.stop, list[JournalReader]()

    def stop_counted(self: JournalReader) -> None:
        stopped.append(self)
        stop(self)

    async def counted(self: JetStream, stream: str, subject: str, sequence: int, *which: Any) -> Page:
        page = await read(self, stream, subject, sequence, *which)
        if stream == api.names.journal and page.messages:
            asked.append(sequence)
        return page

    monkeypatch.setattr(JetStream, "read", counted)
    monkeypatch.setattr(JournalReader, "stop", stop_counted)
    async with await api.client("acme", ["read"]) as client, await api.client("*", ["read"]) as operator:
        async with tailing(client) as one, tailing(client) as two, tailing(operator) as three:
            for number in range(1, 21):
                await journal.flush(delivered(number))
                for each in (one, two, three):
                    assert await each.numbers(1) == [("acme.billing", number)]
            assert stopped == []
        assert 10 < len(asked) == len(set(asked))
        await until(lambda: len(stopped) == 1)
        assert len(api.state.tails) == 0


# ---- bounds


async def test_only_so_many_streams_are_open_at_a_time(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_streams, "TOKEN_STREAMS_MAX", 2)
    monkeypatch.setattr(tail_streams, "STREAMS_MAX", 3)
    async with await api.client("acme", ["read"]) as client, await api.client("other", ["read"]) as other:
        async with tailing(client), tailing(client):
            problem(await client.get(TAIL), 429, "rate")
            theirs = TAIL.replace("acme", "other")
            async with other.stream("GET", theirs) as answer:
                assert answer.status_code == 200
                full = await other.get(theirs)
                problem(full, 503, "unavailable")
                assert full.headers["retry-after"] == "1"
        await until(lambda: not len(api.state.tails))
        async with tailing(client), tailing(client):
            assert len(api.state.tails) == 2


async def test_the_tokens_of_one_tenant_leave_room_for_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "TENANT_STREAMS_MAX", 2)
    clients = [await api.client(tenant, ["read"]) for tenant in ("acme", "acme", "acme", "other")]
    async with clients[0] as first, clients[1] as second, clients[2] as third, clients[3] as other:
        async with tailing(first), tailing(second):
            told = problem(await third.get(TAIL), 429, "rate")
            assert "the tokens of a tenant together may have 2 streams" in told
            async with other.stream("GET", TAIL.replace("acme", "other")) as answer:
                assert answer.status_code == 200
        await until(lambda: not len(api.state.tails))
        async with tailing(third), tailing(third):
            assert len(api.state.tails) == 2


async def test_a_client_that_does_not_read_is_cut_off_and_slows_down_no_other(
    api: Api, journal: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_streams, "BUFFER_MAX", 64 << 10)
    monkeypatch.setattr(bounded_protocol, "STALLED_MAX_S", 4.0)  # Its buffer is full before that.
    token = await api.token("acme", ["read"])
    here = server.bind_socket("127.0.0.1", 0)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    async with AsyncExitStack() as open_ones, server.served(api.to.settings, here) as state:
        await until(lambda: state.valid(token.id) is not None)
        deaf = open_ones.enter_context(socket.socket())
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(here.getsockname())
        deaf.sendall(f"GET {TAIL} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token.text}\r\n\r\n".encode())
        headers = {"authorization": f"Bearer {token.text}"}
        async with (
            plain_client(base_url=server.url(here), headers=headers, timeout=30) as client,
            tailing(client) as events,
        ):
            await until(lambda: len(state.tails) == 2)
            both = list(state.tails)
            for number in range(1, 401):
                await journal.flush(failed(number, answer="x" * 1000))
                assert await events.numbers(1) == [("acme.billing", number)]
            await until(lambda: len(state.tails) == 1)
            assert sorted(each.ended for each in both) == ["", tail_streams.TOO_SLOW]


async def test_a_stream_ends_when_its_buffer_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_streams, "BUFFER_MAX", 4096)
    stream = TailStream(
        "id",
        Token(tenant="acme", scopes=("read",), hash="", created_at=datetime.now(UTC)),
        TailFilter(about="acme"),
        AttemptPosition(),
    )
    while not stream.ended:
        stream.give(b"x" * 1000)
    pieces = [piece async for piece in stream.pieces()]
    assert pieces[1] == b"x" * 4000
    assert tail_streams.TOO_SLOW.encode() in pieces[2]
    assert len(pieces) == 3


async def test_an_answer_that_is_not_read_ends_the_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = asyncio.Event()

    class Watched(bounded_protocol.BoundedProtocol):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            ended.set()

    monkeypatch.setattr(bounded_protocol, "STALLED_MAX_S", 0.2)
    monkeypatch.setattr(server, "BoundedProtocol", Watched)
    here = server.bind_socket("127.0.0.1", 0)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    async with server.served(api.to.settings, here):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(here.getsockname())
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 4)
            async with asyncio.timeout(PATIENCE_S):
                await ended.wait()


# ---- ends


async def test_a_token_that_is_revoked_or_expires_ends_its_streams(api: Api, journal: JournalWriter) -> None:
    revoked = await api.token("acme", ["read"])
    brief = await api.token("acme", ["read"], lasts_s=3.0)
    async with (
        api.client_with(brief.text) as guest,
        api.client_with(revoked.text) as thief,
        await api.client("acme", ["read"]) as client,
    ):
        async with tailing(guest) as expiring, tailing(thief) as ending, tailing(client) as staying:
            await revoke(api.to, revoked.id)
            began_at = time.monotonic()
            assert await ending.next() == ("end", {"why": tail_streams.REVOKED})
            assert time.monotonic() - began_at < 1.0
            assert await expiring.next() == ("end", {"why": tail_streams.REVOKED})
            assert (await ending.next(), await expiring.next()) == (("closed", {}), ("closed", {}))
            await journal.flush(delivered(1))
            assert await staying.numbers(1) == [("acme.billing", 1)]
        problem(await thief.get(TAIL), 401, "unauthorized")


async def test_streams_end_while_no_revocation_could_be_noticed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await api.client("acme", ["read"]) as client, tailing(client) as events:
        monkeypatch.setattr(api_state, "STALE_AFTER_S", 0.0)
        assert await events.next() == ("end", {"why": tail_streams.REVOKED})


async def test_a_server_that_stops_ends_its_streams_in_order(api: Api) -> None:
    token = await api.token("acme", ["read"])
    here = server.bind_socket("127.0.0.1", 0)
    async with (
        plain_client(
            base_url=server.url(here), headers={"authorization": f"Bearer {token.text}"}, timeout=30
        ) as client,
        AsyncExitStack() as open_ones,
    ):
        async with server.served(api.to.settings, here) as state:
            await until(lambda: state.valid(token.id) is not None)
            events = await open_ones.enter_async_context(tailing(client))
            began_at = time.monotonic()
        assert time.monotonic() - began_at < server.STOP_TIMEOUT_S / 2
        assert await events.next() == ("end", {"why": tail_streams.STOPPING})
        assert await events.next() == ("closed", {})


@pytest.mark.parametrize(
    ("after", "query"),
    [("x", {}), ("7", {}), ("", {"type": "a..b"}), ("", {"receiver": "a.b"}), ("", {"receiver": "*"})],
)
async def test_a_filter_that_cannot_be_followed_is_refused(
    api: Api, after: str, query: dict[str, str]
) -> None:
    async with await api.client("acme", ["read"]) as client:
        headers = {"last-event-id": after} if after else {}
        problem(await client.get(TAIL, params=query, headers=headers), 422, "invalid")
    assert len(api.state.tails) == 0
