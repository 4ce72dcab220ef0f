"""Folds the facts of a receiver over a base state, up to a moment or to the end. Pure.

Base states are made from the ledger's own facts, after these were stored. If one is missing because a process
was killed, a longer series of facts is folded, with the same result. So no base state is ever indispensable.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from actors.machine.evolve import evolve
from actors.machine.facts import Fact
from actors.machine.state import State
from angarium.ledger.batch import BaseRow, ReceiverRow, milliseconds

BASE_EVERY_FACTS = 1000
BASE_EVERY_MS = 86_400_000
BASE_BYTES_MIN = 16 << 10
BASE_BYTES_RATIO = 10
"""A base state is due when the facts since the last one have this many times its size, so it costs a
tenth."""

_facts = msgspec.json.Decoder(list[Fact])
_state = msgspec.json.Decoder(State)


def facts_in(text: str) -> list[Fact]:
    """The facts of a row."""
    return _facts.decode(text)


def without_answers(facts: str, event: str) -> str:
    """The facts in JSON, without what receivers answered to the event."""
    decoded: list[dict[str, Any]] = msgspec.json.decode(facts)
    for fact in decoded:
        if any(each.get("id") == event for each in fact.get("events", ())):
            fact.pop("answer", None)
    return msgspec.json.encode(decoded).decode()


class FoldedState(Struct, frozen=True):
    """The state of a receiver, the position of the last fact in it, and when that happened."""

    state: State
    position: int
    at: int


def is_base_due(receiver: ReceiverRow, now: int) -> bool:
    """True if enough has happened since the last base state to be worth the bytes of another."""
    return (
        receiver.facts_since >= BASE_EVERY_FACTS
        or receiver.bytes_since >= max(BASE_BYTES_MIN, BASE_BYTES_RATIO * receiver.base_bytes)
        or now - receiver.based_at >= BASE_EVERY_MS
    )


def fold(
    name: str, base: BaseRow | None, rows: Iterable[tuple[int, int, str]], until: int | None
) -> FoldedState:
    """Fold the rows of `facts` (position, time of the flush, facts), in order, up to the time `until`.

    A fact without a time happened together with the one before it in its flush.
    """
    state = State(receiver=name) if base is None else _state.decode(base.state)
    position, at = (0, 0) if base is None else (base.position, base.at)
    for flush_position, flushed_at, text in rows:
        facts = facts_in(text)
        happened = min(flushed_at, next((t for t in map(_fact_ms, facts) if t), flushed_at))
        for fact in facts:
            happened = _fact_ms(fact) or happened
            if until is not None and happened > until:
                return FoldedState(state, position, at)
            state = evolve(state, fact)
            at = max(at, happened)
        position = flush_position
    return FoldedState(state, position, at)


def as_base(receiver: int, moment: FoldedState) -> BaseRow:
    text = msgspec.json.encode(moment.state).decode()
    return BaseRow(receiver, moment.position, moment.at, "fold", text)


def _fact_ms(fact: Fact) -> int:
    return milliseconds(getattr(fact, "at", 0.0))
