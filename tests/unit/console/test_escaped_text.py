"""Texts from outside: bounded, and without what a browser or a reader would obey."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.console.rendering.escaped_text import (
    BODY_BYTES_MAX,
    VALUE_CHARS_MAX,
    body_shown,
    cut,
    one_value,
    visible,
    with_times,
)

LONGEST_ESCAPE = len(r"\U0010ffff")


@given(st.text())
def test_a_value_is_printable_and_one_line(text: str) -> None:
    shown = one_value(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable() or len(text) > VALUE_CHARS_MAX


@given(st.text() | st.from_regex(r"<b>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"))
def test_a_sentence_has_no_markup_but_its_times(text: str) -> None:
    shown = re.sub(
        r'<time datetime="[-0-9T:.Z]{20,24}">([-0-9]{10} [0-9:]{8} UTC)</time>', "", with_times(text)
    )
    assert not re.search("[<>]", shown)


def test_an_instant_in_a_sentence_is_shown_like_other_times() -> None:
    shown = with_times("backing off until 2026-11-23T12:03:10Z (in 42s): it answered <503>")
    assert shown == (
        'backing off until <time datetime="2026-11-23T12:03:10Z">2026-11-23 12:03:10 UTC</time> (in 42s): '
        "it answered &lt;503&gt;"
    )
    assert with_times("at 2026-11-23T12:03:10.123Z") == (
        'at <time datetime="2026-11-23T12:03:10.123Z">2026-11-23 12:03:10 UTC</time>'
    )


@given(st.binary())
def test_a_body_has_no_character_that_is_obeyed_but_line_breaks_and_tabs(body: bytes) -> None:
    shown = body_shown(body)
    assert shown.text.replace("\n", "").replace("\t", "").isprintable()
    assert (shown.size, shown.is_cut) == (len(body), False)
    try:
        body.decode()
    except UnicodeDecodeError:
        assert shown.is_binary
    else:
        assert not shown.is_binary


@pytest.mark.parametrize("character", ["é", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_a_cut_through_a_character_is_no_other_encoding(character: str, shift: int) -> None:
    shown = body_shown(("x" * shift + character * BODY_BYTES_MAX).encode())
    assert shown.is_cut
    assert not shown.is_binary
    assert set(shown.text) <= {"x", character}
    assert body_shown(b"\xff" + character.encode() * BODY_BYTES_MAX).is_binary


def test_the_largest_body_makes_a_bounded_text() -> None:
    shown = body_shown(b"\x00" * (256 << 10))
    assert len(shown.text) <= BODY_BYTES_MAX * LONGEST_ESCAPE
    assert shown.size == 256 << 10
    assert shown.is_cut


def test_a_long_value_says_how_much_is_missing() -> None:
    assert cut("a" * VALUE_CHARS_MAX) == "a" * VALUE_CHARS_MAX
    assert cut("a" * (VALUE_CHARS_MAX + 1234)).endswith("… (1,234 more characters)")


def test_escapes_say_what_they_stand_for() -> None:
    assert visible("a\u202eb\x1b[2J\r\n\tc", keeping="\n\t") == "a\\u202eb\\x1b[2J\\r\n\tc"


def test_a_body_may_be_shown_up_to_another_bound() -> None:
    shown = body_shown(b"a" * 100, 64)
    assert (shown.text, shown.size, shown.is_cut) == ("a" * 64, 100, True)
