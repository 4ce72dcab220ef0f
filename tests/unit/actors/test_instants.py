"""Instants as text: the texts of `datetime`, which stand in bodies that must be the same on every attempt."""

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from actors.times_as_text import instant_text


@given(st.floats(-1e9, 4e9))
@example(1_795_233_800.9999999)
@example(1_795_233_800.0005)
@example(-0.0000001)
def test_an_instant_is_written_as_datetime_writes_it(at: float) -> None:
    written = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    assert instant_text(at) == written.replace("+00:00", "Z")
