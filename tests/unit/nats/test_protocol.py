"""Texts of the server, and their parsing."""

import math
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from streams.nats.answers import Page, Refused, Stored, StoredMessage, Unanswered
from streams.nats.protocol import (
    BLOCK_BYTES_MAX,
    LINES_MAX,
    StreamReply,
    page,
    parse_block,
    publish_answer,
    stream_info,
    timestamp_of,
)
from streams.nats.wire import Message
from streams.nats.wire_names import UNREAD
from streams.reading.reply_subject import delivery_info


@given(st.integers(0, 4_000_000_000_000_000_000))
def test_an_instant_is_the_same_in_both_forms(nanoseconds: int) -> None:
    """An API answer gives RFC 3339 with as many digits as needed; a reply subject gives nanoseconds."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:09}".rstrip("0").rstrip(".")
    info = delivery_info(f"$JS.ACK.S.c.1.1.1.{nanoseconds}.0")
    assert timestamp_of(f"{text}{fraction}Z") == info.stored_at


@pytest.mark.parametrize(
    ("text", "epoch"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-11-21T03:20:39Z", 1795231239.0),
        ("2026-11-21T03:20:39.5Z", 1795231239.5),
        ("2026-11-21T03:20:39.755360726Z", 1795231239755360726 / 1e9),
    ],
)
def test_known_instants(text: str, epoch: float) -> None:
    assert timestamp_of(text) == epoch


def test_headers() -> None:
    raw = b"A: 1\r\nB:2\r\nempty:\r\nA:  last \r\nno colon\r\nC: a: b\r\nU: gr\xc3\xbc\xc3\x9fe \xff\r\n\r\n"
    assert parse_block(b"NATS/1.0\r\n" + raw) == {
        "A": "last",
        "B": "2",
        "empty": "",
        "C": "a: b",
        "U": "grüße \ufffd",
    }


NAMES = st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters=":\x7f"), min_size=1)
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]) | st.just(" "))
"""Values without the blanks that only one of both takes off at the ends, such as U+001F and U+00A0."""


@given(st.lists(st.tuples(NAMES, VALUES)))
def test_a_block_has_the_headers_that_nats_py_finds_in_it(given: list[tuple[str, str]]) -> None:
    lines = "".join([*(f"{name}: {value}\r\n" for name, value in given), "\r\n"]).encode()
    assert parse_block(b"NATS/1.0\r\n" + lines) == Client._parse_header_lines(lines)


@given(st.text(alphabet="A :\r\n\t0\xa0\u0664", max_size=20).map(str.encode) | st.binary(max_size=40))
def test_any_block_is_read_line_by_line(lines: bytes) -> None:
    headers: dict[str, str] = {}
    for line in lines.split(b"\r\n"):
        name, colon, value = (each.decode("utf-8", "replace") for each in line.partition(b":"))
        headers |= {name.strip(): value.strip()} if colon else {}
    assert parse_block(b"NATS/1.0\r\n" + lines + b"\r\n\r\n") == headers


@given(st.text(alphabet="A :\r\n", max_size=20).map(str.encode) | st.binary(max_size=40))
def test_a_stored_block_is_read_alike_with_what_the_server_puts_behind_it(lines: bytes) -> None:
    """nats-server cuts off the last two bytes for its own headers, whatever they are."""
    block = b"NATS/1.0\r\n" + lines
    added = {"Nats-Stream": "S", "Nats-Sequence": "7"}
    tail = "".join(f"{name}: {value}\r\n" for name, value in added.items()).encode()
    assert parse_block(block[:-2] + tail + b"\r\n", appended=True) == parse_block(block) | added


def block(count: int, size: int = 0) -> bytes:
    """A block with that many headers, the last of which fills it up to the size."""
    lines = b"".join(b"H%d: \r\n" % number for number in range(count))
    return b"NATS/1.0\r\n" + lines[:-2] + b"v" * (size - len(lines) - 12) + b"\r\n\r\n"


def test_a_block_with_too_many_lines_or_bytes_is_not_parsed() -> None:
    """Parsing 13,000 lines takes 6 ms, and any producer may store them."""
    assert len(parse_block(block(LINES_MAX))) == LINES_MAX
    assert len(parse_block(block(1, BLOCK_BYTES_MAX))["H0"]) == BLOCK_BYTES_MAX - 18
    for large in (block(LINES_MAX + 1), block(13_000), block(1, BLOCK_BYTES_MAX + 1)):
        assert parse_block(large) == {UNREAD: str(len(large))}
        tail = b"Nats-Stream: S\r\nNats-Subject: s.a\r\nNats-Sequence: 7\r\n\r\n"
        assert parse_block(large[:-2] + tail, appended=True) == {
            UNREAD: str(len(large)), "Nats-Stream": "S", "Nats-Subject": "s.a", "Nats-Sequence": "7"
        }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "headers"),
    [
        (b"NATS/1.0", {}),
        (b"NATS/1.0 404", {"Status": "404"}),
        (b"NATS/1.0 404 No Messages", {"Status": "404", "Description": "No Messages"}),
        (b"NATS/1.0 409  Consumer Deleted ", {"Status": "409", "Description": "Consumer Deleted"}),
        (b"NATS/1.0 ", {}), (b"NATS/1.0 no", {}), (b"HTTP/1.0 404", {}), (b"", {}),
        (b"NATS/1.0 \xd9\xa4", {}),  # A digit, but none of ASCII.
    ],
)  # fmt: skip
def test_the_first_line_may_hold_a_status(first: bytes, headers: dict[str, str]) -> None:
    assert parse_block(first + b"\r\n\r\n") == headers
    assert parse_block(first + b"\r\nA: 1\r\n\r\n") == {"A": "1"} | headers


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b'{"stream":"S","seq":7}', Stored(7)),
        (b'{"stream":"S","seq":7,"duplicate":true,"domain":"hub"}', Stored(7, duplicate=True)),
        (
            b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S"}',
            Refused(10071, "wrong last sequence: 3"),
        ),
    ],
)
def test_publish_answers(data: bytes, answer: Stored | Refused) -> None:
    assert publish_answer(Message("inbox", data)) == answer


@pytest.mark.parametrize("data", [b"", b"+ACK", b"{}", b"[]", b'{"seq":7}', b'{"stream":"S","seq":"7"}'])
def test_an_invalid_answer(data: bytes) -> None:
    assert isinstance(publish_answer(Message("inbox", data)), Unanswered)


def part(sequence: int, before: int) -> Message:
    headers = {
        "Own": "header",
        "Nats-Stream": "S",
        "Nats-Subject": "s.a",
        "Nats-Sequence": str(sequence),
        "Nats-Time-Stamp": "2026-11-21T03:20:39Z",
        "Nats-Num-Pending": "9",
        "Nats-Last-Sequence": str(before),
    }
    return Message("inbox", b"x", "", headers)


def end(last: int, pending: int) -> Message:
    headers = {"Status": "204", "Nats-Num-Pending": str(pending), "Nats-Last-Sequence": str(last)}
    return Message("inbox", b"", "", headers)


class TestPages:
    def test_a_whole_page_is_read(self) -> None:
        stored = [StoredMessage("s.a", n, 1795231239.0, {"Own": "header"}, b"x") for n in (3, 8)]
        assert page([part(3, 0), part(8, 3), end(8, 5)]) == Page(stored, 5)

    def test_an_empty_page_is_read(self) -> None:
        assert page([Message("inbox", b"", "", {"Status": "404"})]) == Page([], 0)

    @pytest.mark.parametrize(
        "parts",
        [
            [part(8, 3), end(8, 0)],
            [part(3, 0), part(9, 8), end(9, 0)],
            [part(3, 0), end(8, 0)],
            [end(8, 0)],
        ],
    )
    def test_a_hole_in_a_page_is_seen(self, parts: list[Message]) -> None:
        answer = page(parts)
        assert isinstance(answer, Unanswered)
        assert "was lost" in answer.why

    def test_a_direct_get_that_the_server_refuses_is_unanswered(self) -> None:
        refusal = Message("inbox", b"", "", {"Status": "408", "Description": "Bad Request"})
        assert page([refusal]) == Unanswered("direct get: 408 Bad Request")
        assert page([Message("inbox", b"", "", {"Status": "503"})]) == Unanswered("direct get: 503")


class TestReplySubjects:
    @pytest.mark.parametrize(
        "reply",
        [
            "$JS.ACK.S.c.2.17.5.1795231239755360726.3",
            "$JS.ACK.hub.A1b2.S.c.2.17.5.1795231239755360726.3",
            "$JS.ACK.hub.A1b2.S.c.2.17.5.1795231239755360726.3.rnd",
        ],
    )
    def test_all_forms_of_reply_subjects_are_read(self, reply: str) -> None:
        info = delivery_info(reply)
        assert (info.position, info.number, info.pending) == (17, 5, 3)
        assert info.stored_at == 1795231239755360726 / 1e9

    @pytest.mark.parametrize("reply", ["", "orders.new", "a.b.c.d.e.f.g.h.i"])
    def test_another_subject_is_not_a_reply_subject(self, reply: str) -> None:
        with pytest.raises(ValueError, match="not the reply subject"):
            delivery_info(reply)


@pytest.mark.parametrize(
    ("replicas", "cluster", "heard_s"),
    [
        (1, None, 0.0),
        (1, '{"leader": "a"}', 0.0),
        (3, None, math.inf),
        (3, '{"leader": "", "replicas": [{"current": true, "active": 5}]}', math.inf),
        (3, '{"leader": "a", "replicas": [{"current": true, "active": 500000000}, {}]}', 0.5),
        # One that was never heard of shows 0, and one that fell behind says nothing of who leads now.
        (3, '{"leader": "a", "replicas": [{"current": true, "active": 0}, {"active": 5}]}', math.inf),
        (3, '{"leader": "a", "replicas": [{"current": true, "offline": true, "active": 5}]}', math.inf),
        (5, '{"leader": "a", "replicas": [{"current": true, "active": 1000000000}, '
            '{"current": true, "active": 3000000000}, {"current": true, "active": 2000000000}]}', 2.0),
    ],
)  # fmt: skip
def test_when_a_majority_has_answered(replicas: int, cluster: str | None, heard_s: float) -> None:
    text = f'{{"config": {{"name": "S", "num_replicas": {replicas}}}, "cluster": {cluster or "null"}}}'
    assert stream_info(msgspec.json.decode(text, type=StreamReply)).heard_s == heard_s


def test_replicas_that_lack_messages_or_are_away_are_behind() -> None:
    text = """{"config": {"name": "S", "num_replicas": 5}, "cluster": {"leader": "a", "replicas": [
        {"name": "b", "current": true}, {"name": "c"}, {"name": "d", "current": true, "offline": true}]}}"""
    assert stream_info(msgspec.json.decode(text, type=StreamReply)).behind == ("c", "d")
