"""An answer is the same however its bytes are split, and every bound is exact."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from angarium.delivery.http_exchange.answer import REST_BYTES_MAX, Answer
from angarium.delivery.http_exchange.transport import BODY_MAX, HEAD_MAX, INTERIM_MAX, FailureKind, Response

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

ANSWERS = [
    OK,
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    b"HTTP/1.1 200\r\nX-A: 1\r\nx-a: \xe9\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\nx-end: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    b"HTTP/1.0 500 Oh\r\n\r\nuntil the end",
    OK + OK,
    OK + b"surplus",
    b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: y\r\n folded\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
    b"HTTP/0.9 200 OK\r\n\r\n",
    b"ICE/1.0 200 OK\r\n\r\n",
    b"HELLO",
]


def fed(*parts: bytes) -> Answer:
    answer = Answer()
    for part in parts:
        if answer.feed(part):
            break
    return answer


def parts_of(response: Response) -> int:
    """The length of the headers and the body."""
    return len(response.body) + sum(len(name) + len(value) for name, value in response.headers)


def what_it_is(answer: Answer) -> object:
    """All that is asked of an answer; of a fault, its kind. Its size depends on how much came at once."""
    kind = answer.fault and answer.fault[0]
    return answer.headed, answer.over, kind, answer.headed and replace(answer.response(0.0), size=0)


@pytest.mark.parametrize("data", ANSWERS)
@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_an_answer_may_be_cut_into_reads_anywhere(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges) if a < b]
    assert what_it_is(fed(*parts)) == what_it_is(fed(data))


@pytest.mark.parametrize("data", ANSWERS)
def test_the_parts_of_an_answer_are_no_longer_than_its_size(data: bytes) -> None:
    answer = fed(data)
    if answer.headed:
        assert 0 < parts_of(answer.response(0.0)) + len("HTTP/1.1 200\r\n\r\n") <= answer.response(0.0).size


@given(st.lists(st.binary(min_size=1, max_size=64), max_size=8))
def test_no_bytes_break_the_parser(parts: list[bytes]) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"):
        answer = fed(*filter(None, [start, *parts]))
        assert answer.over or answer.fault is None
        assert not (answer.fault and answer.reusable)
        assert not answer.headed or parts_of(answer.response(0.0)) <= answer.response(0.0).size


@pytest.mark.parametrize("read", [1, 1000, HEAD_MAX - 1, HEAD_MAX, HEAD_MAX + 1, 4 * HEAD_MAX])
@pytest.mark.parametrize("over", [0, 1])
def test_the_bound_of_headers_is_exact_at_any_size_of_read(read: int, over: int) -> None:
    start, end = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx: ", b"\r\n\r\n"
    data = start + b"a" * (HEAD_MAX - len(start) - len(end) + over) + end + b"ok"
    answer = fed(*(data[i : i + read] for i in range(0, len(data), read)))
    if over:
        assert answer.fault == (FailureKind.HEADERS_TOO_LARGE, "headers over 65536 bytes")
        assert answer.status == 200
        assert not answer.reusable
    else:
        assert answer.response(0.0).body == b"ok"
        assert answer.reusable


@pytest.mark.parametrize("over", [0, 1])
def test_the_bound_of_interim_answers_is_exact(over: int) -> None:
    answer = fed(b"HTTP/1.1 102 Processing\r\nx: y\r\n\r\n" * (INTERIM_MAX + over) + OK)
    if over:
        assert answer.fault == (FailureKind.PROTOCOL, "more than 16 interim answers")
    else:
        assert answer.response(0.0).headers == (("content-length", "2"),)


@pytest.mark.parametrize("size", [0, BODY_MAX - 1, BODY_MAX, BODY_MAX + 1, 3 * BODY_MAX])
@pytest.mark.parametrize("read", [1000, 1 << 20])
def test_a_body_is_kept_up_to_its_bound(size: int, read: int) -> None:
    data = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, b"x" * size)
    answer = fed(*(data[i : i + read] for i in range(0, len(data), read)))
    assert answer.over
    assert answer.response(0.0).body == b"x" * min(size, BODY_MAX)
    assert answer.reusable or size > BODY_MAX


@pytest.mark.parametrize("rest", [b"1;" + b"x" * 100 + b"\r\n", b"0\r\nx: y", b"0\r\n" + b"x: y\r\n" * 100])
def test_framing_without_end_is_cut(rest: bytes) -> None:
    answer = fed(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", rest)
    while not answer.feed(b"y" * 1000):
        assert answer.has_begun
    assert answer.fault is None
    assert not answer.reusable
    assert answer.response(0.0).status == 200
    assert REST_BYTES_MAX >= 4 * BODY_MAX


def test_blanks_around_the_value_of_a_header_do_not_belong_to_it() -> None:
    answer = fed(b"HTTP/1.1 400 No\r\nangarium-abort: \t true \t\r\ncontent-length: 0\r\n\r\n")
    assert answer.response(0.0).headers[0] == ("angarium-abort", "true")


def test_nothing_of_one_answer_stays_for_the_next() -> None:
    answer = fed(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy")
    answer.reset()
    assert (answer.status, answer.has_begun, answer.headed, answer.over) == (0, False, False, False)
    assert answer.feed(OK)
    response = answer.response(0.25)
    assert (response.status, response.body, response.latency_s) == (200, b"ok", 0.25)
    assert response.headers == (("content-length", "2"),)
