"""The time that a producer asks for: read once, kept to the microsecond, due at the next full second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.machine.event import Event
from actors.times_as_text import exact_instant_text, instant_text
from angarium.operations.events.message import NewEvent, message_of
from streams.installation.topology import Names
from streams.nats.wire_names import DELIVER_AT
from streams.timed.entries import due_second, entry_address, entry_put
from streams.timed.timing import parsed_time, timing_of

NAMES = Names("angarium")
PUBLISHED_AT, UNTIL = 1_795_000_000, 1_795_000_000 + 29 * 86_400


@pytest.mark.parametrize(
    ("text", "second", "kept"),
    [
        ("2026-12-24T18:00:00Z", 0, "2026-12-24T18:00:00.000Z"),
        ("2026-12-24T18:00:00.000001Z", 1, "2026-12-24T18:00:00.000001Z"),
        ("2026-12-24T18:00:00.0005Z", 1, "2026-12-24T18:00:00.000500Z"),
        ("2026-12-24T18:00:00.999999999Z", 1, "2026-12-24T18:00:00.999999Z"),
        ("2026-12-24T19:00:00.5+01:00", 1, "2026-12-24T18:00:00.500Z"),
    ],
)
def test_an_event_is_due_at_the_next_full_second(text: str, second: int, kept: str) -> None:
    """With plain NATS, and over the API, which writes the header again."""
    whole = parsed_time("2026-12-24T18:00:00Z")
    at = parsed_time(text)
    assert whole is not None
    assert at is not None
    headers = message_of(NAMES, NewEvent(tenant="acme", type="a", id="x", deliver_at=at)).put.headers or {}
    assert headers[DELIVER_AT] == kept
    for given_text in (text, headers[DELIVER_AT]):
        timing = timing_of({DELIVER_AT: given_text}, "acme", whole - 60)
        assert due_second(timing.deliver_at) == whole + second
        event = Event(position=1, id="x", stored_at=1.0, body=b"", deliver_at=timing.deliver_at)
        assert entry_address(event, 0, "acme", 1).second == whole + second
        put = entry_put(NAMES, entry_address(event, 0, "acme", 1), event)
        assert (put.headers or {})[DELIVER_AT] == kept


@given(st.integers(PUBLISHED_AT * 10**6, UNTIL * 10**6))
def test_a_time_is_the_same_after_it_was_written_and_read(micros: int) -> None:
    at = micros / 1e6
    assert parsed_time(exact_instant_text(at)) == at


@given(st.integers(PUBLISHED_AT * 1000, UNTIL * 1000))
def test_whole_milliseconds_are_written_as_everywhere(millis: int) -> None:
    assert exact_instant_text(millis / 1e3) == instant_text(millis / 1e3)
