"""Hostile filters over hostile bodies of 256 KiB: no pair takes more than a bound, and none raises.

What is counted are calls of functions, which are the same on every machine. The times are in the decision.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from actors.configuration.filters.evaluating import (
    CONTAINERS_MAX,
    DIGITS_MAX,
    ELEMENTS_MAX,
    FLOATS_MAX,
    FilterResult,
    decode_body,
    filter_of,
)
from actors.configuration.filters.work import STEPS_MAX

BODY_BYTES = 256 << 10
CALLS_A_STEP = 4
"""Calls of functions for one step, at most."""


def filled(piece: bytes, begin: bytes = b"[", end: bytes = b"]", count_max: int = BODY_BYTES) -> bytes:
    """A body that is full of this piece, or has so many of them."""
    room = (BODY_BYTES - len(begin) - len(end)) // (len(piece) + 1)
    return begin + b",".join([piece] * min(room, count_max)) + end


def doubled(text: str, times: int) -> str:
    return text + "|[@,@][]" * times


JUST_DECODED: dict[str, bytes] = {
    "everything": b'{"a":[%s],"f":[%s],"s":[%s]}' % (
        b",".join([b"[]"] * (CONTAINERS_MAX - 4)),
        b",".join([b"0.1234567890123456789012345"] * (FLOATS_MAX // 2)),
        b",".join([b'"\\u00e9\\u00e9"'] * 3000),
    ),
    "arrays": filled(b"[]", count_max=CONTAINERS_MAX - 1),
    "pairs": filled(b"[1,2,3,4]", count_max=6500),
    "objects": b"[%s]" % b",".join(b'{"i":%d,"n":"x%d"}' % (each, each) for each in range(7000)),
    "integers": b"[%s]" % b",".join(b"%d" % each for each in range(ELEMENTS_MAX)),
    "keys": b"{%s}" % b",".join(b'"k%d":1' % each for each in range(20_000)),
    "equal keys": filled(b'"a":1', b"{", b"}", ELEMENTS_MAX),
    "fractions": filled(b"1e-308", count_max=FLOATS_MAX // 3),
    "long integers": filled(b"1" * DIGITS_MAX),
    "texts": filled(b'"%s"' % (b"ab" * 20)),
    "long text": b'"' + b"a" * (BODY_BYTES - 2) + b'"',
    "two long texts": b'{"a":"%s","b":"%s"}' % (b"a" * (BODY_BYTES // 2 - 10), b"a" * (BODY_BYTES // 2 - 20)),
    "almost the same": b'{"a":"%s","b":"%s"}' % ((b"a" * 1000 + b"b") * 120, b"a" * 2000),
    "wide letters": ('["' + "\U0001f600a" * 40_000 + '","' + "\U0001f600a" * 10_000 + '"]').encode(),
    "escapes": filled(b'"\\u00e9"'),
    "deep": b"[" * 128 + b"]" * 128,
    "blanks": b" " * (BODY_BYTES - 1) + b"1",
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, FilterResult]] = {
    "many arrays": (filled(b"[]"), FilterResult.TOO_COSTLY),
    "many objects": (filled(b'{"a":1}'), FilterResult.TOO_COSTLY),
    "many integers": (filled(b"1"), FilterResult.TOO_COSTLY),
    "many fractions": (filled(b"1e308"), FilterResult.TOO_COSTLY),
    "long fractions": (filled(b"1." + b"7" * 900), FilterResult.TOO_COSTLY),
    "one long integer": (b"1" * BODY_BYTES, FilterResult.TOO_COSTLY),
    "one long fraction": (b"1." + b"7" * (BODY_BYTES - 2), FilterResult.TOO_COSTLY),
    "deeper": (b"[" * 129 + b"]" * 129, FilterResult.NOT_JSON),
    "deepest": (b"[" * (CONTAINERS_MAX - 1), FilterResult.NOT_JSON),
    "deep objects": (b'{"a":' * 8000 + b"1" + b"}" * 8000, FilterResult.NOT_JSON),
}
TWINS = "[[@], [@]]" + "|[[@[0], @[0]], [@[1], @[1]]]" * 30 + "|@[0]==@[1]"
"""Two values of a billion elements that are equal, each built of parts that it shares."""
EXPRESSIONS = (
    "a", "@ == @", "[@, @] == [@, @]", "@[0:] == @[1:]", "[@[0:], @[0:]] | @[0] == @[1]", "@[?@ == @]",
    "@[?@[0] == @[1]]", "[*]", "[].[@, @]", "[*].[*][]", "[*].*", "*.*", "*", "@[?contains(@, 'x')]",
    "contains(@[*], 'x')", "sum(@)", "max(@)", "sum(f)", "avg(f)", "@[?length(@) > `0`]", "contains(a, b)",
    "starts_with(a, b)", "a < b", "a == b", "@[?!(@)]", "@[?a || b || c || d || e]", "keys(@)", "values(@)",
    "[*].{a: @, b: @, c: @}", "@[?type(@) == 'number']", "@[?to_number(@) > `1`]", "@[?not_null(@, @, @)]",
    "@[?abs(@) > `1`]", "[*].{i: i, n: n} | [?i == `1`]", "contains(@[0], @[1])", "@[?@ == `[1, 2, 3, 4]`]",
    "@[?ends_with(@, @)]", "[*] | [*] | [*] | [*]", "@[?@.a.b.c.d.e.f.g]", "@[::-1]" + "|@[::-1]" * 100,
    "[@,@]" + "|[@,@]" * 140 + "|@==`[]`", "[@,@]" + "|[@,@]" * 60 + "|@[0]==@[1]",
    TWINS, doubled("[@, @]", 100), doubled("[a, b]", 9) + "|max(@)",
    doubled("[a, a]", 9) + "|[?starts_with(@, @)]", doubled("[a, b]", 9) + "|[?@ < 'aaaa']",
    doubled("[@[0], @[1]]", 9) + "|sum(@)", "@[*][*][*][*]", "[[*], [*]][][][]", "!" * 30 + "a",
    "||".join(["a"] * 300), "&&".join(["@"] * 300), "[" + ",".join(["@"] * 400) + "]",
    "[" + ",".join(["@[*]"] * 150) + "]",
)  # fmt: skip


def calls_of(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result, and the number of functions that were called for it."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        found = work()
    finally:
        sys.setprofile(None)
    return found, count


@pytest.mark.parametrize("name", JUST_DECODED)
def test_no_filter_takes_more_than_its_steps_over_a_hostile_body(name: str) -> None:
    decoded, calls = calls_of(lambda: decode_body(JUST_DECODED[name]))
    assert decoded.problem is None
    assert calls < CALLS_A_STEP * FLOATS_MAX
    for text in EXPRESSIONS:
        answer, calls = calls_of(partial(filter_of(text).evaluate, decoded))
        assert answer.steps <= STEPS_MAX, text
        assert calls <= CALLS_A_STEP * answer.steps + 50, (text, calls, answer)


@pytest.mark.parametrize(
    ("length", "wanted"), [(2499, 1250), (29_999, 99), (250_000, 5)], ids=["short", "middle", "long"]
)
def test_a_search_costs_what_it_may_compare(length: int, wanted: int) -> None:
    """CPython searches such texts in the product of their lengths: 4 KB took 40 ms."""
    half = wanted // 2
    decoded = decode_body(msgspec.json.encode({"a": "a" * length, "b": "a" * half + "b" + "a" * half}))
    assert filter_of("contains(a, b)").evaluate(decoded).steps > (length - wanted) * wanted // 1100
    often = filter_of("||".join(["contains(a,b)"] * 68)).evaluate(decoded)
    assert often.result is FilterResult.TOO_COSTLY


def test_a_search_for_a_word_is_cheap() -> None:
    decoded = decode_body(b'{"a":"%s","b":"needle in it"}' % (b"x" * 250))
    assert filter_of("contains(a, b)").evaluate(decoded).steps < 20


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_would_take_too_long_is_not_decoded(name: str) -> None:
    body, result = REFUSED[name]
    decoded, calls = calls_of(lambda: decode_body(body))
    assert decoded.problem is not None
    assert decoded.problem.result is result
    assert decoded.problem.why
    assert calls < CALLS_A_STEP * FLOATS_MAX


def test_hostile_values_are_too_costly_and_usual_ones_are_not() -> None:
    usual = b'{"lines":[%s]}' % b",".join(b'{"sku":"a-%d","price":%d.5}' % (n, n) for n in range(1000))
    assert filter_of("lines[?price > `998`]").evaluate(decode_body(usual)).result is FilterResult.PASSED
    large = decode_body(JUST_DECODED["objects"])
    for text in ("[?i == n]", "[*].i | [?@ > `1`]", TWINS):
        assert filter_of(text).evaluate(large).result is FilterResult.TOO_COSTLY, text
