"""The rows that a ledger must have for a journal: every readable fact once, computed in the plainest way."""

from collections import Counter
from collections.abc import Collection
from typing import Any

import msgspec
from msgspec.structs import replace

from actors.machine import facts as f
from angarium.ledger import schema
from tests.contract.ledger.model.history_generator import HistoryGenerator, WrittenFlush
from tests.support.installation import shard
from tests.support.ledgers import Kept

Row = tuple[Any, ...]
_WORDS = {f.Delivered: schema.DELIVERED, f.AttemptFailed: schema.FAILED, f.Throttled: schema.THROTTLED}
_CHANGES = {
    f.Opened: "opened", f.Forgot: "forgot", f.Removed: "removed", f.Paused: "paused", f.Resumed: "resumed",
    f.RateSet: "rate_set", f.Disabled: "disabled",
}  # fmt: skip


class Expected:
    """The rows, each with the time of the flush that it was written or changed by.

    - `missed`: by shard, the positions that were gone before the ledger had read them.
    - `redacted`: the positions that had no answers any more when it read them.
    """

    def __init__(self, history: HistoryGenerator, missed: dict[int, set[int]], redacted: set[int]) -> None:
        self.attempts: dict[Row, int] = {}
        self.deliveries: dict[Row, tuple[Row, int]] = {}
        self.facts: dict[Row, int] = {}
        self.changes: Counter[Row] = Counter()
        self._erased = history.erased
        read = {each.position: each for each in history.flushes if each.position not in missed[each.shard]}
        for of, gone in missed.items():
            for position in range(1, len(history.flushes) + 1):
                if position in gone:
                    self._interrupt(of)
                elif (flush := read.get(position)) is not None and flush.shard == of:
                    self._read(_without_answers(flush) if position in redacted else flush)

    def _interrupt(self, of: int) -> None:
        """End the open deliveries of a shard: how they go on is not known, unless they are seen again."""
        for key, (row, at) in self.deliveries.items():
            if shard(key[0]) == of and row[-1] == "open":
                self.deliveries[key] = ((*row[:-1], "unknown"), at)

    def _read(self, flush: WrittenFlush) -> None:
        for name in {each.receiver for each in flush.facts}:
            mine = [each for each in flush.facts if each.receiver == name]
            self.facts[name, flush.position, without(mine, self._erased)] = flush.at
        for fact in flush.facts:
            if (kind := _CHANGES.get(type(fact))) is not None:
                self.changes[fact.receiver, flush.position, kind, flush.at] += 1
            match fact:
                case f.Delivered() | f.AttemptFailed() | f.Throttled():
                    (event,) = fact.events
                    answer = getattr(fact, "answer", "") if event.id not in self._erased else ""
                    row = (
                        fact.receiver,
                        flush.position,
                        event.sequence,
                        fact.attempt,
                        schema.OVERLOAD if getattr(fact, "ours", False) else _WORDS[type(fact)],
                        answer,
                    )
                    self.attempts[row] = flush.at
                    ending = "delivered" if isinstance(fact, f.Delivered) else "open"
                    self._delivery(fact.receiver, event.sequence, event.id, fact.attempt, ending, flush.at)
                case f.EventsNumbered(events=(event,)):
                    self._delivery(fact.receiver, event.sequence, event.id, 0, "open", flush.at)
                case f.DeadLettered(events=(event,)):
                    self._delivery(fact.receiver, event.sequence, event.id, fact.attempts, "dead", flush.at)
                case f.Forgot() | f.Removed():
                    self._discard(fact.receiver, flush.at)
                case f.Missing(first=position):
                    self._discard(fact.receiver, flush.at, f"e{position:04}")

    def _delivery(
        self, receiver: str, sequence: int, event: str, attempts: int, ending: str, at: int
    ) -> None:
        (_, before, _), _ = self.deliveries.get((receiver, sequence), (("", 0, ""), 0))
        self.deliveries[receiver, sequence] = ((event, max(before, attempts), ending), at)

    def _discard(self, receiver: str, at: int, only: str = "") -> None:
        for key, (row, _) in self.deliveries.items():
            if key[0] == receiver and row[-1] == "open" and only in ("", row[0]):
                self.deliveries[key] = ((*row[:-1], "discarded"), at)


class Found:
    """The rows of a ledger, in the same form."""

    def __init__(
        self, attempts: list[Row], deliveries: list[Row], facts: list[Row], changes: list[Row]
    ) -> None:
        self.attempts = [(*row[:-1], row[-1] or "") for row in attempts]
        self.deliveries = [(tuple(row[:2]), (*row[2:4], _ending(*row[4:]))) for row in deliveries]
        self.facts = [(name, position, _decoded(text)) for name, position, text in facts]
        self.changes = changes


async def found_in(ledger: Kept) -> Found:
    named = "JOIN receivers r ON r.id = {}.receiver"
    return Found(
        await ledger.rows(
            "SELECT r.name, position, sequence, attempt, verdict, answer FROM attempts "
            + named.format("attempts")
        ),
        await ledger.rows(
            "SELECT r.name, sequence, event, attempts, ended_at, ending FROM deliveries "
            + named.format("deliveries")
        ),
        await ledger.rows(f"SELECT r.name, position, facts FROM facts {named.format('facts')}"),
        await ledger.rows(
            f"SELECT r.name, position, kind FROM changes {named.format('changes')} WHERE kind <> 'recovered'"
        ),
    )


def differences(expected: Expected, found: Found, kept_since: int) -> list[str]:
    """The differences of a ledger: what is twice, or invented, or missing since that time."""
    told = list[str]()
    told += _compare("attempts", expected.attempts, found.attempts, kept_since)
    rows = {(key, row): at for key, (row, at) in expected.deliveries.items()}
    told += _compare("deliveries", rows, found.deliveries, kept_since)
    told += _compare("facts", expected.facts, found.facts, kept_since)
    counted = Counter(found.changes)
    for (*key, at), count in expected.changes.items():
        there = counted.pop(tuple(key), 0)
        if there > count or (there < count and at >= kept_since):
            told.append(f"changes: {there} of {key} instead of {count}")
    return told + [f"changes: {key} is invented" for key in counted]


def _compare(table: str, expected: dict[Any, int], found: list[Any], kept_since: int) -> list[str]:
    counted = Counter(found)
    told = [f"{table}: {row} is there {count} times" for row, count in counted.items() if count > 1]
    told += [f"{table}: {row} is invented" for row in counted if row not in expected]
    return told + [
        f"{table}: {row} is missing"
        for row, at in expected.items()
        if at >= kept_since and row not in counted
    ]


def _without_answers(flush: WrittenFlush) -> WrittenFlush:
    facts = (replace(each, answer="") if isinstance(each, f.AttemptFailed) else each for each in flush.facts)
    return replace(flush, facts=tuple(facts))


def without(facts: Collection[f.Fact], erased: Collection[str]) -> bytes:
    """The facts in JSON, without the answers to erased events."""
    plain = [msgspec.to_builtins(each) for each in facts]
    for fact in plain:
        if any(event["id"] in erased for event in fact.get("events", ())):
            fact.pop("answer", None)
    return msgspec.json.encode(plain, order="sorted")


def _decoded(text: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")


def _ending(ended_at: int | None, ending: int | None) -> str:
    if ending is None:
        return "open" if ended_at is None else "unknown"
    return schema.ENDINGS[ending - 1]
