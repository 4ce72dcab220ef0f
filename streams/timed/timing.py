"""Reads the headers by which a producer asks for a time, and those of an event that is due. Pure."""

import re
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from actors.errors import InvalidName
from actors.ids import split_receiver
from streams.nats.wire_names import DELIVER_AT, DUE, ONLY_FOR

AHEAD_MAX_S = 30 * 86_400.0
"""Longest time that an event may wait, counted from when it was stored."""
TIME_TEXT = "a time as in RFC 3339, such as 2026-12-24T18:00:00Z"
DUE_PROBLEM = f"{DUE}: set by Angarium only; leave it out"
TIMING_HEADERS = frozenset({DELIVER_AT, DUE, ONLY_FOR})
"""Headers that have a meaning in the events stream only."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)
_DUE = re.compile(r"[1-9][0-9]{0,11}\.[1-9][0-9]{0,18}\Z")


class Timing(Struct, frozen=True):
    """The timing of a published event; `problem` says why it cannot be kept.

    - `deliver_at`: when it is delivered, in seconds since the epoch; 0 if that was before it was stored.
    - `due`: where an event waited that is due.
    - `only_for`: the name of its only receiver.
    """

    deliver_at: float = 0.0
    due: str = ""
    only_for: str = ""
    problem: str = ""


UNTIMED = Timing()


def timing_of(headers: Mapping[str, str], tenant: str, stored_at: float) -> Timing:
    """The timing in the headers of an event that was stored at that time.

    What it means follows from the event alone, so every router decides alike.
    """
    if TIMING_HEADERS.isdisjoint(headers):
        return UNTIMED
    due, text, name = headers.get(DUE, ""), headers.get(DELIVER_AT, ""), headers.get(ONLY_FOR, "")
    if due and not _DUE.match(due):
        return Timing(problem=DUE_PROBLEM)
    if name and (problem := _receiver_problem(tenant, name, is_timed=bool(due or text))):
        return Timing(problem=problem)
    if due or not text:
        return Timing(due=due, only_for=name)
    at = parsed_time(text)
    if at is None:
        return Timing(problem=f"{DELIVER_AT}: {TIME_TEXT}")
    if at > stored_at + AHEAD_MAX_S:
        return Timing(problem=f"{DELIVER_AT}: at most 30 days ahead")
    return Timing(deliver_at=at if at > stored_at else 0.0, only_for=name)


def parsed_time(text: str) -> float | None:
    """The time of a text in RFC 3339, in seconds since the epoch, cut to microseconds; None if it is none."""
    if not _TIME.match(text):
        return None
    try:
        return max(datetime.fromisoformat(text.upper()).timestamp(), 1.0)
    except (ValueError, OverflowError):
        return None


def _receiver_problem(tenant: str, name: str, *, is_timed: bool) -> str:
    if not is_timed:
        return f"{ONLY_FOR}: only with {DELIVER_AT}; publish to angarium.deliver.<tenant>.<name> instead"
    try:
        split_receiver(f"{tenant}.{name[:256]}")
    except InvalidName as error:
        return f"{ONLY_FOR}: {error}"
    return ""
