"""JetStream's answers as our own types.

A publish has three outcomes, and all are expected, so they are values. `Unanswered` is the important one: the
message may be stored or not, and only repeating it under its expectation, or asking the leader, can tell.
"""

from typing import Any

from msgspec import Struct


class Stored(Struct, frozen=True, gc=False):
    """The message (of several: the last one) is stored at `position`.

    `duplicate`: nothing was added, since a message with the same `Nats-Msg-Id` is at `position`.
    """

    position: int
    duplicate: bool = False


class Refused(Struct, frozen=True, gc=False):
    """A refusal by the server, with its `err_code`; this request stored nothing."""

    code: int
    text: str


class Unanswered(Struct, frozen=True, gc=False):
    """No answer (timeout, no leader, connection lost): the message may be stored, now or a little later."""

    why: str


class Forbidden(Unanswered, frozen=True, gc=False):
    """No answer, since the server said that our user may not publish there, or may not receive answers."""


class NoResponders(Unanswered, frozen=True, gc=False):
    """No answer, since no stream takes messages of this subject: this request stored nothing."""


Answer = Stored | Refused | Unanswered


class Put(Struct, frozen=True, gc=False):
    """One message of an atomic batch."""

    subject: str
    data: bytes
    headers: dict[str, str] | None = None


class StoredMessage(Struct, frozen=True, gc=False):
    """A message in a stream; `stored_at` is the server's time, in seconds since the epoch."""

    subject: str
    position: int
    stored_at: float
    headers: dict[str, str]
    data: bytes


class Page(Struct, frozen=True):
    """The answer to one read.

    - `pending`: number of messages that the answering replica has after these.
    - `up_to`: the last position that it knows, if it says so.
    """

    messages: list[StoredMessage]
    pending: int
    up_to: int = 0


class StreamInfo(Struct, frozen=True):
    """A stream as its leader sees it.

    - `created`: the server's RFC 3339 text as it came, since it is only ever compared.
    - `first`: position of the oldest message that is left; last + 1 if there is none.
    - `max_bytes`: -1 means no limit.
    - `heard_s`: how long ago a majority last followed the answering leader; 0.0 for a single server.
    - `last_at`: when the message at `last` was stored, in seconds since the epoch; 0.0 if not known.
    - `behind`: the servers with a replica that lacks messages now, if only the very last ones.
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
    behind: tuple[str, ...] = ()


class ConsumerInfo(Struct, frozen=True):
    """A consumer as its leader sees it.

    - `delivered`, `ack_floor`: positions in the stream.
    - `delivered_consumer`, `ack_floor_consumer`: the consumer's own sequences.
    - `pending`: messages that are not handed out yet.
    - `unacked`: messages that are handed out, and neither acked nor given up.
    """

    name: str
    created: str
    delivered: int
    delivered_consumer: int
    ack_floor: int
    ack_floor_consumer: int
    pending: int
    unacked: int
    config: dict[str, Any]
