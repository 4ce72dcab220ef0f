"""The requests of operators to the owner of one receiver, each recorded before it is answered."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from actors.machine.scheduling.pace_in_words import PaceState
from angarium.access import Access
from angarium.operations.control_requests.ask import (
    ATTEMPT_TIMEOUT_S,
    WaitingEvents,
    ask,
    backlog,
    requested_by,
)
from angarium.operations.failures import operation


@operation
async def pause(access: Access, receiver: str) -> None:
    """Pause a receiver; that is recorded in its configuration."""
    await ask(access, "pause", receiver, requested_by(access))


class ResumedReceiver(Struct, frozen=True, kw_only=True):
    """A resumed receiver, and the learnt pace that limited it and is forgotten; None if there was none."""

    forgotten_pace: PaceState | None = None

    @property
    def text(self) -> str:
        """The end of the sentence that it is resumed: empty, or `; its learnt pace of … is forgotten`."""
        return "" if self.forgotten_pace is None else f"; {forgotten_words(self.forgotten_pace)}"


def forgotten_words(pace: PaceState) -> str:
    """Say that a learnt pace is forgotten: `its learnt pace of 1.31 a second is forgotten`."""
    rate, in_flight = pace["effective_limit"], pace["concurrency"]
    limits = [] if rate is None else [f"{rate:.3g} a second"]
    limits += [] if in_flight is None else [f"{in_flight} in flight"]
    return f"its learnt pace of {' and '.join(limits)} is forgotten"


@operation
async def resume(access: Access, receiver: str) -> ResumedReceiver:
    """End a receiver's pause, disablement, backoff and throttling, and forget its learnt pace."""
    answer = await ask(access, "resume", receiver, requested_by(access))
    return msgspec.convert({"forgotten_pace": answer.get("forgotten_pace")}, ResumedReceiver)


class Skipped(Struct, frozen=True, kw_only=True):
    """The event that is now a dead letter, and its number."""

    sequence: int
    event_id: str


@operation
async def skip(access: Access, receiver: str) -> Skipped:
    """Make the oldest event a dead letter, so that the next one is sent. Waits for an attempt in flight."""
    answer = await ask(access, "skip", receiver, requested_by(access), timeout_s=ATTEMPT_TIMEOUT_S)
    return Skipped(sequence=answer["sequence"], event_id=answer["event_id"])


class Pong(Struct, frozen=True, kw_only=True):
    """The receiver's answer, or the error; `answer` is the node's whole answer."""

    status: int | None = None
    error: str | None = None
    latency_ms: float
    answer: dict[str, object]

    @property
    def is_accepted(self) -> bool:
        """True if the receiver answered 2xx."""
        return self.error is None and self.status is not None and 200 <= self.status < 300


@operation
async def ping(access: Access, receiver: str) -> Pong:
    """Post a ping, which takes a token of the receiver's rate."""
    answer = await ask(access, "ping", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return msgspec.convert(answer | {"answer": answer}, Pong)


class Forgotten(Struct, frozen=True, kw_only=True):
    """The count of discarded events, and the number that the next event gets."""

    discarded: int
    next_sequence: int


@operation
async def forget(
    access: Access, receiver: str, agreed: Callable[[WaitingEvents], bool] = lambda _: True
) -> Forgotten | None:
    """Discard the waiting events, if `agreed` returns True for their number; returns None if it does not.

    An attempt under way is awaited.
    """
    found = await backlog(access, receiver)
    if found.count and not agreed(found):
        return None
    answer = await ask(access, "forget", receiver, requested_by(access), timeout_s=ATTEMPT_TIMEOUT_S)
    return Forgotten(discarded=answer["discarded"], next_sequence=answer["next_sequence"])


class HandshakeOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a handshake: `verified`, or the status or error of the receiver's answer.

    `answer` is the node's whole answer.
    """

    verified: bool
    status: int | None = None
    error: str | None = None
    latency_ms: float
    answer: dict[str, object]


@operation
async def verify(access: Access, receiver: str) -> HandshakeOutcome:
    """Make a handshake, which takes a token of the receiver's rate; returns once its outcome is recorded."""
    answer = await ask(access, "verify", receiver, timeout_s=ATTEMPT_TIMEOUT_S)
    return msgspec.convert(answer | {"answer": answer}, HandshakeOutcome)
