"""JetStream's answers, in our own words.

A publish has three outcomes and all are expected, so they are values. `Unanswered` is the one that
matters: the message may be stored or not, and only repeating it under its expectation, or asking the
leader, tells.
"""

from typing import Any

from msgspec import Struct


class Stored(Struct, frozen=True, gc=False):
    """The message (of a batch: the last one) is stored at `sequence`.

    `duplicate`: nothing was added, a message with the same `Nats-Msg-Id` lies at `sequence`.
    """

    sequence: int
    duplicate: bool = False


class Refused(Struct, frozen=True, gc=False):
    """A refusal of the server, by its `err_code`; this request stored nothing."""

    code: int
    text: str


class Unanswered(Struct, frozen=True, gc=False):
    """No answer: time-out, no leader, connection lost. It may be stored, or be so a little later."""

    why: str


class Forbidden(Unanswered, frozen=True, gc=False):
    """The server told in its place that our user may not publish there, or not hear answers."""


Answer = Stored | Refused | Unanswered


class Put(Struct, frozen=True, gc=False):
    """One message of an atomic batch."""

    subject: str
    data: bytes
    headers: dict[str, str] | None = None


class StoredMessage(Struct, frozen=True, gc=False):
    """A message as it lies in a stream; `stored_at` is the server's time, seconds since the epoch."""

    subject: str
    sequence: int
    stored_at: float
    headers: dict[str, str]
    data: bytes


class Page(Struct, frozen=True):
    """The answer to one read. `pending` = messages that the answering replica has after these, `up_to` = the
    last sequence that it knows of, where it says so."""

    messages: list[StoredMessage]
    pending: int
    up_to: int = 0


class StreamInfo(Struct, frozen=True):
    """A stream as its leader sees it.

    `created` is the server's RFC 3339 text, kept as it came, since it is only ever compared. `first` is
    the sequence of the oldest message that is left (last + 1 when none is). `max_bytes` -1 = no limit.
    `heard_s` = how long ago a majority last followed who tells this, 0.0 where there is but one server.
    `last_at` is when the message at `last` was stored, seconds since the epoch; 0.0 where that is not known.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int
    max_bytes: int
    config: dict[str, Any]
    heard_s: float = 0.0
    last_at: float = 0.0


class ConsumerInfo(Struct, frozen=True):
    """A consumer as its leader sees it.

    `delivered` and `ack_floor` are stream sequences, `delivered_consumer` and `ack_floor_consumer` the
    consumer's own, which restart at 1 on a reset. `pending` = messages not yet handed out,
    `unacked` = handed out and neither acked nor given up. `pinned` = the pin's id, of its priority group.
    """

    name: str
    created: str
    delivered: int
    delivered_consumer: int
    ack_floor: int
    ack_floor_consumer: int
    pending: int
    unacked: int
    pinned: str
    config: dict[str, Any]
