"""Outcomes: the result of an attempt, and its meaning for the delivery and the receiver.

An outcome is a value: a receiver that refuses, hangs or breaks off is expected. Only `judge` turns an answer
into a verdict; everything else follows from the verdict.
"""

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

from msgspec import Struct

RETRY_AFTER_MAX_S = 86400.0
"""The longest pause that a receiver can ask for."""
EXCERPT_BODY_MAX = 4096
EXCERPT_HEADERS_MAX = 8192
"""Limits of a kept answer: bytes of its body, characters of its headers."""
REJECTED = frozenset({400, 409, 413, 415, 422, 431})
"""Statuses by which a receiver says that it will never accept this event."""
ABORT = "angarium-abort"
"""The header by which an answer, `true`, rejects this event at once."""
DISABLE = "angarium-disable"
"""The header by which an answer, `true`, disables the receiver, as a 410 does."""
OVERLOAD = "overload"
"""The `error` of an attempt for which this node had no connection, descriptor or port to spare."""
PROXY = "proxy"
"""The `error` of an attempt that the operator's proxy did not let through: the receiver was not asked."""
OUTAGE = "outage"
"""The `error` of an attempt that failed while this node could connect to no host."""
INTERNAL = "internal"
"""The `error` of an attempt that broke inside this node: a defect, which the log describes."""

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?\Z", re.ASCII)


class Answered(Struct, frozen=True, gc=False, kw_only=True):
    """An answer; only its status counts. Header names are in lower case; `body` is as much as was read.

    `size`: bytes that came, which headers and body cannot exceed; 0 if that is unknown.
    """

    status: int
    latency_ms: float
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    size: int = 0

    def header(self, name: str) -> str | None:
        """The first header of that name (lower case)."""
        return next((value for key, value in self.headers if key == name), None)

    def says(self, name: str) -> bool:
        """True if a header of that name (lower case) is `true`. Each success is asked, so it is quick."""
        return (name, "true") in self.headers

    def excerpt(self) -> "Answered":
        """The part that may be kept in memory for every receiver: the body cut, and the headers that fit."""
        if 0 < self.size <= EXCERPT_BODY_MAX:
            return self
        if len(self.body) <= EXCERPT_BODY_MAX and _length(self.headers) <= EXCERPT_HEADERS_MAX:
            return self
        kept: list[tuple[str, str]] = []
        room = EXCERPT_HEADERS_MAX
        for header in self.headers:
            if (size := _length((header,))) <= room:
                kept.append(header)
                room -= size
        return Answered(
            status=self.status,
            latency_ms=self.latency_ms,
            headers=tuple(kept),
            body=self.body[:EXCERPT_BODY_MAX],
        )


class Failed(Struct, frozen=True, gc=False, kw_only=True):
    """No usable answer: `error` is one token (`timeout`, `connect`, `blocked`), `detail` is for people.

    `unreached`: no connection was opened, and the network may be the reason.
    """

    error: str
    detail: str
    latency_ms: float
    status: int | None = None
    unreached: bool = False

    @property
    def is_our_failure(self) -> bool:
        """True if this node or its proxy failed, not the receiver or the event."""
        return self.error in (OVERLOAD, INTERNAL, PROXY, OUTAGE)


class NotSent(Struct, frozen=True, gc=False, kw_only=True):
    """An attempt that sent nothing (the lease expired, or a body cannot be shaped): it is not recorded.

    `unshapeable`: positions of the events whose bodies cannot be shaped as the configuration asks.
    """

    why: str
    unshapeable: tuple[int, ...] = ()


Outcome = Answered | Failed | NotSent


class Verdict(StrEnum):
    """The meaning of an answer."""

    DELIVERED = "delivered"
    THROTTLED = "throttled"
    GONE = "gone"
    REJECTED = "rejected"
    RETRY = "retry"


def judge(outcome: Answered | Failed, now: float) -> Verdict:
    """The verdict on an answer that came at `now`: the table of answers in docs/wire.md, as code.

    An answer that disables the receiver has the verdict of a 410, unless the event is delivered.
    """
    if isinstance(outcome, Failed):
        return Verdict.RETRY
    match outcome.status:
        case status if 200 <= status < 300:
            return Verdict.DELIVERED
        case _ if outcome.says(DISABLE):
            return Verdict.GONE
        case 429:
            return Verdict.THROTTLED
        case 503 if retry_after_s(outcome, now) is not None:
            return Verdict.THROTTLED
        case 410:
            return Verdict.GONE
        case status if status in REJECTED or outcome.says(ABORT):
            return Verdict.REJECTED
        case _:
            return Verdict.RETRY


def is_aborted(outcome: Answered | Failed, verdict: Verdict) -> bool:
    """True if the answer rejects the event at once. A success or a throttled attempt does not."""
    if isinstance(outcome, Failed) or verdict not in (Verdict.GONE, Verdict.REJECTED):
        return False
    return outcome.says(ABORT)


def retry_after_s(answer: Answered, now: float) -> float | None:
    """Seconds of the pause that the receiver asked for (RFC 9110, 10.2.3); None without a valid time.

    Fractions are rounded up: the RFC has none, but some servers send them. A date is taken relative to the
    answer's own `Date`, if it has one, so that the receiver's clock need not agree with ours.
    """
    text = (answer.header("retry-after") or "").strip()
    if _SECONDS.match(text):
        return float(math.ceil(min(float(text), RETRY_AFTER_MAX_S)))
    named, sent = _date(text), _date(answer.header("date") or "")
    if named is None:
        return None
    return min(max(0.0, named - (now if sent is None else sent)), RETRY_AFTER_MAX_S)


def _length(headers: tuple[tuple[str, str], ...]) -> int:
    return sum([len(name) + len(value) for name, value in headers])


def _date(text: str) -> float | None:
    """The time of an HTTP date in any of its forms (RFC 9110, 5.6.7); without a zone (asctime) it is UTC."""
    if not 20 <= len(text) <= 64:
        return None
    try:
        date = parsedate_to_datetime(text)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
