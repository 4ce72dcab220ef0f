"""Dead letters: what was published and why it was given up, stored once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import Struct

from actors.machine.facts import Burial
from streams.dead_letters.bury import DeadLetterWriter
from streams.dead_letters.letters import DeadLetters
from streams.installation.topology import Names
from streams.nats.answers import Answer, Page, Stored, StoredMessage
from streams.nats.connection import ConnectOptions, connect
from streams.nats.jetstream import JetStream
from streams.nats.protocol import BLOCK_BYTES_MAX, LINES_MAX
from streams.reading.messages import HEADERS_UNREAD
from tests.contract.support.faults import FaultyJetStream, request_lost
from tests.support.installation import install, publish, shard
from tests.support.waiting import PATIENCE_S, until, until_true

RECEIVER = "acme.billing"


async def letters(js: JetStream, names: Names, receiver: str = RECEIVER) -> list[StoredMessage]:
    return (await js.read(names.dead_letters, names.dead(receiver), 1)).messages


async def test_a_dead_letter_is_what_was_published_and_why_it_is_here(js: JetStream, names: Names) -> None:
    body = b'{"n": 1}\x00\xff'
    headers = {"Nats-Msg-Id": "order-1", "Content-Type": "text/plain", "X-Own": "kept", "Angarium-Type": "a"}
    position = await publish(js, names, RECEIVER, body, headers)
    burial = Burial(position=position, reason="attempts", sequence=7, attempts=3, status=500)
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial])
    (letter,) = await letters(js, names)
    assert letter.subject == names.dead(RECEIVER)
    assert letter.data == body
    assert letter.headers == {
        "Content-Type": "text/plain",
        "X-Own": "kept",
        "Angarium-Type": "a",
        "Angarium-Id": "order-1",
        "Nats-Msg-Id": "acme.billing:7",
        "Angarium-Reason": "attempts",
        "Angarium-Sequence": "7",
        "Angarium-Attempts": "3",
        "Angarium-Status": "500",
    }


@pytest.mark.parametrize(
    ("answer", "header"),
    [
        ('{"error": "no such customer"}', '{"error": "no such customer"}'),
        ("100 % \r\nAngarium-Reason: x\x00\x1b[2J", "100 %25 %0D%0AAngarium-Reason: x%00%1B[2J"),
        (" é\n", "%C3%A9"),
        ("\ufffd" * 65_536, "%EF%BF%BD" * 113),
        ("a" * 65_536, "a" * 1024),
        (" \n" * 1000, None),
        ("", None),
    ],
)
async def test_a_letter_has_the_beginning_of_any_last_answer(
    js: JetStream, names: Names, answer: str, header: str | None
) -> None:
    position = await publish(js, names, RECEIVER, b"{}", {"Angarium-Response": "forged"})
    burial = Burial(position=position, reason="rejected", sequence=1, attempts=5, status=422)
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial], {position: answer, position + 1: "another's"})
    (letter,) = await letters(js, names)
    assert letter.headers.get("Angarium-Response") == header
    assert letter.headers["Angarium-Reason"] == "rejected"
    read = await DeadLetters(js, names).letter(letter.position)
    assert read is not None
    assert answer.strip().startswith(read.response)
    assert bool(read.response) is (header is not None)


async def test_without_its_answer_it_is_the_same_letter(js: JetStream, names: Names) -> None:
    """After a crash, the next owner no longer has the answer."""
    position = await publish(js, names, RECEIVER)
    burial = Burial(position=position, reason="rejected", sequence=1, attempts=5, status=422)
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial], {position: "no"})
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial])
    (letter,) = await letters(js, names)
    assert letter.headers["Angarium-Response"] == "no"


async def test_burying_again_adds_nothing(js: JetStream, names: Names) -> None:
    position = await publish(js, names, RECEIVER)
    dead_letters = DeadLetterWriter(js, names)
    for _ in range(2):
        await dead_letters.bury(RECEIVER, [Burial(position=position, reason="expired", sequence=1)])
    assert len(await letters(js, names)) == 1


async def test_the_id_outlives_the_message_also_where_it_was_derived(js: JetStream, names: Names) -> None:
    position = await publish(js, names, RECEIVER)
    await DeadLetterWriter(js, names).bury(
        RECEIVER, [Burial(position=position, reason="expired", sequence=1)]
    )
    (letter,) = await letters(js, names)
    assert letter.headers["Angarium-Id"].startswith(f"evt_{position}_")


async def test_only_our_own_headers_say_why(js: JetStream, names: Names) -> None:
    forged = {
        "Angarium-Reason": "x", "Angarium-Status": "200", "Angarium-Sequence": "9", "Angarium-Body": "",
        "angarium-status": "200", "Angarium-Response": "x", "Angarium-Problem": "x",
    }  # fmt: skip
    position = await publish(js, names, RECEIVER, b"", forged)
    await DeadLetterWriter(js, names).bury(RECEIVER, [Burial(position=position, reason="unknown_receiver")])
    (letter,) = await letters(js, names)
    assert {name: value for name, value in letter.headers.items() if name != "Angarium-Id"} == {
        "Nats-Msg-Id": f"acme.billing:p{position}",
        "Angarium-Reason": "unknown_receiver",
        "Angarium-Attempts": "0",
    }


async def test_headers_for_the_server_do_not_act_again(js: JetStream, names: Names) -> None:
    expectations = {"Nats-Expected-Stream": names.deliveries, "nats-own": "x"}
    position = await publish(js, names, RECEIVER, b"", expectations)
    await DeadLetterWriter(js, names).bury(
        RECEIVER, [Burial(position=position, reason="expired", sequence=1)]
    )
    (letter,) = await letters(js, names)
    assert [name for name in letter.headers if name.lower().startswith("nats-")] == ["Nats-Msg-Id"]


async def test_a_malformed_event_says_what_is_wrong_with_it(js: JetStream, names: Names) -> None:
    first = await publish(js, names, RECEIVER, b"", {"Angarium-Type": "a b"})
    second = await publish(js, names, "1st.x", b"")
    dead_letters = DeadLetterWriter(js, names)
    await dead_letters.bury(RECEIVER, [Burial(position=first, reason="malformed", sequence=1)])
    await dead_letters.bury("1st.x", [Burial(position=second, reason="unknown_receiver")])
    (typed,) = await letters(js, names)
    (named,) = await letters(js, names, "1st.x")
    assert typed.headers["Angarium-Problem"].startswith("Angarium-Type: event type 'a b'")
    assert named.headers["Angarium-Problem"].startswith("tenant '1st'")


async def test_an_event_that_is_gone_is_buried_as_headers_alone(js: JetStream, names: Names) -> None:
    position = await publish(js, names, RECEIVER, b"body")
    await publish(js, names, "acme.other", b"not mine")
    await js.purge(names.deliveries, position + 1)
    dead_letters = DeadLetterWriter(js, names)
    await dead_letters.bury(RECEIVER, [Burial(position=position, reason="evicted", sequence=1)])
    await dead_letters.bury(RECEIVER, [Burial(position=position + 1, reason="evicted", sequence=2)])
    found = await letters(js, names)
    assert [(letter.data, letter.headers["Angarium-Body"]) for letter in found] == [(b"", "gone")] * 2


async def test_many_events_are_buried_at_once_even_if_some_are_gone(js: JetStream, names: Names) -> None:
    positions = []
    for number in range(1, 101):
        await publish(js, names, "acme.other")
        positions.append(await publish(js, names, RECEIVER, b"%d" % number * (1 + 5000 * (number % 7))))
    await js.delete(names.deliveries, positions[0])
    await js.delete(names.deliveries, positions[40])
    burials = [
        Burial(position=position, reason="expired", sequence=number)
        for number, position in enumerate(positions, start=1)
    ]
    dead_letters = DeadLetterWriter(js, names)
    await dead_letters.bury(RECEIVER, burials[:30])
    await dead_letters.bury(RECEIVER, burials)
    found = {int(letter.headers["Angarium-Sequence"]): letter for letter in await letters(js, names)}
    assert sorted(found) == list(range(1, 101))
    assert [number for number, letter in found.items() if "Angarium-Body" in letter.headers] == [1, 41]
    assert all(letter.data.startswith(b"%d" % number) for number, letter in found.items() if letter.data)


async def test_events_for_unknown_names_are_buried_together_each_under_its_own_name(
    js: JetStream, names: Names
) -> None:
    """The events are in one shard, with others between them, and one message is gone."""
    mine = [name for name in (f"acme.x{number}" for number in range(400)) if shard(name) == shard(RECEIVER)]
    burials = []
    for name in mine[:40]:
        await publish(js, names, RECEIVER)
        position = await publish(js, names, name, name.encode())
        burials.append(Burial(position=position, reason="unknown_receiver", receiver=name))
    await js.delete(names.deliveries, burials[20].position)
    dead_letters = DeadLetterWriter(js, names)
    await dead_letters.bury("_unknown", burials[:10])
    await dead_letters.bury("_unknown", burials)
    for burial in burials:
        (letter,) = await letters(js, names, burial.receiver)
        assert letter.headers["Nats-Msg-Id"] == f"{burial.receiver}:p{burial.position}"
        assert letter.data == (b"" if burial is burials[20] else burial.receiver.encode())
    assert await letters(js, names) == []


async def test_events_for_unknown_names_are_read_once_and_published_two_at_a_time(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other events would wait: 64 letters take one question to the leader, and no other message is read."""
    mine = [name for name in (f"acme.x{number}" for number in range(1500)) if shard(name) == shard(RECEIVER)]
    burials = []
    for name in mine[:64]:
        position = await publish(js, names, name)
        burials.append(Burial(position=position, reason="unknown_receiver", receiver=name))
    for _ in range(200):
        await publish(js, names, RECEIVER)
    read, asked, sent, most = list[int](), 0, 0, 0
    pages, next_message, store = js.read, js.next_message, js.publish

    async def counted_read(*arguments: Any) -> Page:
        page = await pages(*arguments)
        read.append(len(page.messages))
        return page

    async def counted_question(*arguments: Any) -> StoredMessage | None:
        nonlocal asked
        asked += 1
        return await next_message(*arguments)

    async def counted_publish(*arguments: Any) -> Answer:
        nonlocal sent, most
        sent += 1
        most = max(most, sent)
        answer = await store(*arguments)
        sent -= 1
        return answer

    monkeypatch.setattr(js, "read", counted_read)
    monkeypatch.setattr(js, "next_message", counted_question)
    monkeypatch.setattr(js, "publish", counted_publish)
    await DeadLetterWriter(js, names).bury("_unknown", burials)
    assert (asked, read, most) == (1, [63], 2)


async def test_a_letter_that_cannot_be_stored_does_not_delay_others(
    faulty: FaultyJetStream, names: Names
) -> None:
    mine = [name for name in (f"acme.x{number}" for number in range(400)) if shard(name) == shard(RECEIVER)]
    burials = []
    for name in mine[:10]:
        position = await publish(faulty, names, name)
        burials.append(Burial(position=position, reason="unknown_receiver", receiver=name))
    first = names.dead(burials[0].receiver)
    faulty.faults[first] += [request_lost] * 1000
    burying = asyncio.ensure_future(DeadLetterWriter(faulty, names).bury("_unknown", burials))
    await until(lambda: all(faulty.published[names.dead(each.receiver)] for each in burials))
    assert not burying.done()
    faulty.faults[first].clear()
    await burying
    assert len(await letters(faulty, names, burials[0].receiver)) == 1


async def test_a_full_stream_only_delays_it(
    js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    info = await js.stream_info(names.dead_letters)
    assert info is not None
    await js.stream_update(info.config | {"max_msgs": 1})
    assert isinstance(await js.publish(names.dead("acme.other"), b""), Stored)
    position = await publish(js, names, RECEIVER)
    burial = Burial(position=position, reason="expired", sequence=1)
    burying = asyncio.ensure_future(DeadLetterWriter(js, names).bury(RECEIVER, [burial]))
    await until(lambda: any(record.message == "dead_letter.waiting" for record in caplog.records))
    assert not burying.done()
    await js.purge(names.dead_letters, 2)
    await until(burying.done)
    burying.result()
    assert len(await letters(js, names)) == 1


class Published(Struct):
    """Messages that a client without manners published to the real server, as they are stored."""

    js: JetStream
    names: Names
    raw: asyncio.StreamWriter

    async def messages(self, *sent: tuple[bytes, bytes, bytes]) -> list[StoredMessage]:
        """Publish these receivers, lines of headers and bodies."""
        for receiver, lines, body in sent:
            head = b"NATS/1.0\r\n" + lines + b"\r\n"
            subject = self.names.publish_to("").encode() + receiver
            self.raw.write(b"HPUB %b %d %d\r\n%b%b\r\n" % (subject, len(head), len(head + body), head, body))
        await self.raw.drain()
        found: list[StoredMessage] = []

        async def stored() -> bool:
            found[:] = (
                await self.js.read(self.names.deliveries, self.names.deliveries_to("*.*"), 1)
            ).messages
            return len(found) == len(sent)

        await until_true(stored)
        return found


@pytest.fixture
async def published(nats_url: str, prefix: str) -> AsyncIterator[Published]:
    wire = await connect(ConnectOptions(servers=(nats_url,)))
    js = JetStream(wire)
    await js.start()
    host, _, port = nats_url.removeprefix("nats://").partition(":")
    _, raw = await asyncio.open_connection(host, int(port))
    raw.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
    yield Published(js, await install(js, prefix), raw)
    raw.close()
    await raw.wait_closed()
    await js.stop()
    await wire.close()


LONG_NAMES = (
    b"acme." + b"x" * 4030,
    b"acme." + b"\xff" * 1200,
    b"y" * 4030 + b".x",
    b"acme." + "é".encode() * 2000,
)


async def test_a_name_as_long_as_a_line_to_the_server_does_not_cost_the_connection(
    published: Published,
) -> None:
    """The subject of a letter stands in a line with our inbox: at 4,096 bytes the server hangs up."""
    js, names = published.js, published.names
    found = await published.messages(*((name, b"", b"body") for name in LONG_NAMES))
    told: list[bool] = []
    js.wire.on_change(told.append)
    for message in found:
        receiver = message.subject.split(".", 3)[3]
        burial = Burial(position=message.position, reason="unknown_receiver", receiver=receiver)
        for _ in range(2):
            await DeadLetterWriter(js, names).bury("_unknown", [burial])
    assert told == []
    buried = await letters(js, names, "*.*")
    assert [letter.data for letter in buried] == [b"body"] * len(LONG_NAMES)
    assert len({letter.subject for letter in buried}) == len(LONG_NAMES)
    assert all(len(letter.subject) < 300 for letter in buried)
    assert all(letter.headers["Angarium-Problem"] for letter in buried)


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (b"".join(b"X-%d: v\r\n" % number for number in range(LINES_MAX - 4)), b"body"),
        (b"X-Long: " + b"v" * BLOCK_BYTES_MAX, b"body"),
        (b"X-Long: " + b"\xff" * BLOCK_BYTES_MAX, b"body"),
        (b"X-Long: " + b"\xff" * BLOCK_BYTES_MAX, b"b" * (256 << 10)),
        (b"X-Long: v\r\n", b"b" * (271 << 10)),
    ],
)
async def test_headers_that_leave_no_room_for_ours_are_kept_as_far_as_there_is_room(
    published: Published, lines: bytes, body: bytes
) -> None:
    """The headers may grow, since bytes that are not UTF-8 are replaced."""
    js, names = published.js, published.names
    first, last = b"Angarium-Id: order-1\r\nX-First: kept\r\n", b"\r\nContent-Type: text/plain\r\n"
    room = min(BLOCK_BYTES_MAX, (272 << 10) - len(body)) - len(first + last) - 100
    (message,) = await published.messages((RECEIVER.encode(), first + lines[:room] + last, body))
    burial = Burial(position=message.position, reason="rejected", sequence=1, attempts=5, status=422)
    async with asyncio.timeout(PATIENCE_S):
        await DeadLetterWriter(js, names).bury(RECEIVER, [burial], {message.position: "é" * 1000})
    (letter,) = await letters(js, names)
    assert letter.data == body
    kept = {
        "Content-Type": "text/plain",
        "X-First": "kept",
        "Angarium-Id": "order-1",
        "Angarium-Status": "422",
    }
    assert kept.items() <= letter.headers.items()


async def test_an_event_whose_headers_are_not_read_becomes_a_letter_without_them(
    published: Published,
) -> None:
    js, names = published.js, published.names
    lines = b"Angarium-Id: order-1\r\n" + b"X: v\r\n" * LINES_MAX
    (message,) = await published.messages((RECEIVER.encode(), lines, b"body"))
    burial = Burial(position=message.position, reason="malformed", sequence=1)
    await DeadLetterWriter(js, names).bury(RECEIVER, [burial])
    (letter,) = await letters(js, names)
    assert letter.data == b"body"
    assert letter.headers.pop("Angarium-Id").startswith(f"evt_{message.position}_")
    assert letter.headers == {
        "Nats-Msg-Id": f"{RECEIVER}:1",
        "Angarium-Reason": "malformed",
        "Angarium-Sequence": "1",
        "Angarium-Attempts": "0",
        "Angarium-Problem": HEADERS_UNREAD,
    }


async def test_no_letter_is_stored_after_the_lease(
    js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    """The event may be erased once another owner has buried it."""
    position = await publish(js, names, RECEIVER)
    burial, valid = Burial(position=position, reason="expired", sequence=1), asyncio.Event()
    writer = DeadLetterWriter(js, names, within_lease=valid.is_set)
    burying = asyncio.ensure_future(writer.bury(RECEIVER, [burial]))
    await until(lambda: any(record.message == "dead_letter.waiting" for record in caplog.records))
    assert await letters(js, names, RECEIVER) == []
    valid.set()
    await burying
    assert len(await letters(js, names, RECEIVER)) == 1
