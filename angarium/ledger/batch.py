"""Turns flushes of the journal into rows, for one transaction. Pure: the same flushes give the same rows.

A row of `attempts` is one attempt of one event, or a ping, which has the number 0. A row of `deliveries` is
one numbered event, in the block of the first fact about it. Events that were discarded without any other fact
have no row: their ids are not recorded anywhere.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, field

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import facts as f
from actors.machine.bucket import RateLimit
from actors.machine.numbering import Numbered
from angarium.ledger import schema
from angarium.logs import redact
from streams.journal.envelope import Flush
from streams.lost_tails.read_positions import ReadPosition

FAILING_EPISODE_MIN_MS = 60_000
"""A series of failures that lasted this long gets an entry in the history when it is over."""

Row = tuple[Any, ...]
_encoder = msgspec.json.Encoder()


class ConfigurationRow(Struct, frozen=True):
    """A configuration without its secrets, or None if it was removed. `changed_by`: who did that.

    `replaced`: the revision before it; 0 if it created the receiver, None if that is not known, and -1 if
    others before it may be missing.
    """

    receiver: str
    at: int
    revision: int
    document: str | None
    changed_by: str
    replaced: int | None = None


class ReceiverRow(Struct):
    """A receiver as the ledger knows it.

    - `fresh`: it has no row yet.
    - `shard`: -1 until a fact names it.
    - `paused`, `disabled`, `failing_since`, `failures`: according to its facts.
    - `facts_since`, `bytes_since`: number and size of the facts since its last base state.
    - `last_position`: that of its last fact.
    - `open`: deliveries that have not ended, by their numbers, with the block and the position of each row.
    - `unseen`: deliveries that a gap has ended, by number and position, with the block of each row. They may
      be under way after all.
    """

    id: int
    name: str
    shard: int
    fresh: bool = False
    failing_since: int | None = None
    failures: int = 0
    disabled: str | None = None
    paused: bool = False
    last_at: int | None = None
    last_status: int | None = None
    last_error: str | None = None
    facts_since: int = 0
    bytes_since: int = 0
    base_bytes: int = 0
    based_at: int = 0
    last_position: int = 0
    open: dict[int, tuple[int, int]] = field(default_factory=dict)
    unseen: dict[tuple[int, int], int] = field(default_factory=dict)


class HeldShare(Struct, frozen=True):
    """The right to write a share of the shards.

    It has the position up to which the share is stored, and the number of times that it has changed hands.
    Each write compares both with the stored ones.
    """

    read_to: ReadPosition
    epoch: int = 0


class BaseRow(Struct, frozen=True):
    """The state of a receiver as of a position of the journal, as JSON. `origin`: `fold`, or `snapshot`."""

    receiver: int
    position: int
    at: int
    origin: str
    state: str


class ReadFlush(Struct, frozen=True):
    """One message of the journal, decoded."""

    position: int
    stored_at: float
    shard: int
    flush: Flush


class EndedRow(Struct):
    """A change of a delivery that an earlier batch has stored."""

    block: int
    position: int
    receiver: int
    sequence: int
    attempts: int = 0
    first_at: int | None = None
    ended_at: int | None = None
    ending: int | None = None
    reason: str | None = None


class GapRow(Struct, frozen=True):
    """A part of the journal that a share of the shards lacks, from `first` to `last`."""

    share: int
    first: int
    last: int
    since: int
    until: int


class RowBatch(Struct):
    """The rows of one transaction, all of one block.

    `shares`: the shares that it moves on, each with its position before; `after`: their positions after it.
    """

    shares: dict[int, HeldShare]
    after: dict[int, ReadPosition]
    block: int = 0
    first: int = 0
    last: int = 0
    attempts: list[Row] = field(default_factory=list)
    begun: dict[tuple[int, int], list[Any]] = field(default_factory=dict)
    ended: dict[tuple[int, int], EndedRow] = field(default_factory=dict)
    facts: list[Row] = field(default_factory=list)
    minutes: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    paces: list[Row] = field(default_factory=list)
    claims: list[Row] = field(default_factory=list)
    bases: list[BaseRow] = field(default_factory=list)
    gaps: list[GapRow] = field(default_factory=list)
    touched: dict[int, ReceiverRow] = field(default_factory=dict)
    count: int = 0
    since: int = 1 << 60
    until: int = 0

    def add(self, read: ReadFlush, known: dict[str, ReceiverRow]) -> None:
        """Add one flush; all its receivers are in `known`, and are updated."""
        flush, groups = read.flush, dict[str, list[f.Fact]]()
        flushed_at = milliseconds(flush.at)
        self.first, self.last = self.first or read.position, read.position
        earliest = flush.at
        for ordinal, fact in enumerate(flush.facts):
            self.count += 1
            earliest = min(earliest, getattr(fact, "at", earliest))
            if isinstance(fact, f.Claimed):
                at = milliseconds(fact.at)
                self.claims.append((read.shard, read.position, at, flush.node, fact.epoch, int(fact.clean)))
                continue
            name = key_of(fact.receiver, read.shard)
            receiver = known[name]
            before = groups.setdefault(name, [])
            # A fact without a time happened together with the fact before it.
            happened = milliseconds(getattr(before[-1], "at", 0.0)) if before else 0
            before.append(fact)
            self._fact(receiver, fact, read.position, ordinal, happened or flushed_at)
        self._spans(milliseconds(earliest))
        self._spans(flushed_at)
        for name, facts in groups.items():
            receiver, text = known[name], _encoder.encode(facts).decode()
            self.facts.append((self.block, receiver.id, read.position, flushed_at, text))
            self.touched[receiver.id] = receiver
            receiver.facts_since += len(facts)
            receiver.bytes_since += len(text)
            receiver.last_position = read.position
            receiver.based_at = receiver.based_at or flushed_at

    def _spans(self, at: int) -> None:
        self.since, self.until = min(self.since, at), max(self.until, at)

    def _fact(self, receiver: ReceiverRow, fact: f.Fact, position: int, ordinal: int, happened: int) -> None:
        match fact:
            case f.AttemptFailed(kind=f.NO_ATTEMPT):
                return
            case f.Delivered() | f.AttemptFailed() | f.Throttled():
                self._attempt(receiver, fact, position, ordinal)
                return
            case f.EventsNumbered(events=events) | f.Started(events=events):
                for event in events:
                    self._delivery(receiver, event)
                return
            case f.DeadLettered(events=events, at=at, reason=f.OUTSIDE_REGION, attempts=attempts):
                for event in events:
                    ended = milliseconds(at), schema.DISCARDED, f.OUTSIDE_REGION
                    self._delivery(receiver, event, attempts, *ended)
                return
            case f.DeadLettered(events=events, at=at, reason=reason, attempts=attempts):
                for event in events:
                    self._delivery(receiver, event, attempts, milliseconds(at), schema.DEAD, reason)
                self._minute(receiver, milliseconds(at))[4] += len(events)
            case f.EventRefused(at=at):
                self._minute(receiver, milliseconds(at))[4] += 1
                return
            case f.PaceSet():
                self.paces.append(_pace_row(receiver.id, fact, position, ordinal))
                return
            case f.TurnedAway(at=at, events=turned_away):
                self._minute(receiver, milliseconds(at))[4] += len(turned_away)
                return
            case f.Removed(at=ended_at) | f.Forgot(at=ended_at):
                self._discard(receiver, milliseconds(ended_at), 0, schema.END_OF_TIME, schema.DISCARDED)
            case f.Missing(at=ended_at, first=first, last=last, reason=f.ERASED):
                self._discard(receiver, milliseconds(ended_at), first, last, schema.DISCARDED, f.ERASED)
                return
            case f.Missing(at=ended_at, first=first, last=last):
                self._discard(receiver, milliseconds(ended_at), first, last, schema.MISSING)
            case f.Repaired(at=ended_at, position=first):
                self._discard(receiver, milliseconds(ended_at), first + 1, schema.END_OF_TIME, schema.MISSING)
        if (detail := _detail(fact)) is not None:
            at = milliseconds(getattr(fact, "at", 0.0)) or happened
            kind = str(fact.__struct_config__.tag)
            if isinstance(fact, f.Resumed | f.Retargeted) and receiver.failing_since is not None:
                detail |= {"since": receiver.failing_since, "failures": receiver.failures}
            self._change(receiver, at, position, ordinal, kind, detail)
            _hold(receiver, fact)

    def _attempt(self, receiver: ReceiverRow, fact: f.OutcomeFact, position: int, ordinal: int) -> None:
        ended_at, latency_us = milliseconds(fact.at), round(fact.latency_ms * 1000)
        began_at = round(fact.at * 1000 - fact.latency_ms)
        verdict, error, next_at, answer = schema.DELIVERED, None, None, None
        outcome = 1
        match fact:
            case f.Delivered():
                self._recovered(receiver, fact, position, ordinal)
            case f.Throttled(until=until):
                outcome, verdict, next_at = 3, schema.THROTTLED, milliseconds(until)
                _failing_later(receiver, fact)
            case f.AttemptFailed():
                outcome, verdict, next_at = 2, _verdict(fact), milliseconds(max(fact.next_at, fact.until))
                error = redact(fact.error) if fact.status is None else None
                answer = fact.answer or None
                _failed(receiver, fact)
        receiver.last_at, receiver.last_status, receiver.last_error = ended_at, fact.status, error
        self._spans(began_at)
        key = (self.block, receiver.id, began_at, position, ordinal)
        shared = (fact.attempt, latency_us, verdict, fact.status, error, next_at)
        if not fact.events:
            self.attempts.append((*key, 0, 0, *shared, None, answer))
            return  # A ping delivers nothing, so it would only lower the mean lateness.
        minute, count = self._minute(receiver, began_at), len(fact.events)
        minute[0] += count
        minute[outcome] += count
        minute[5] += latency_us * count
        minute[6] = max(minute[6], latency_us)
        minute[9] += 1
        if gone := [each for each in fact.events if each.transform_gone]:
            first = gone[0]
            detail = {
                "sequence": first.sequence, "count": len(gone), "gone": first.transform_gone,
                "revision": first.transform,
            }  # fmt: skip
            self._change(receiver, ended_at, position, ordinal, "transform_gone", detail)
        for event in fact.events:
            self.attempts.append((*key, event.sequence, event.position, *shared, event.type or None, answer))
            if verdict == schema.DELIVERED:
                self._delivery(receiver, event, fact.attempt, ended_at, schema.SETTLED, first_at=began_at)
                late_ms = max(0, ended_at - milliseconds(event.accepted_at))
                minute[7] += late_ms
                minute[8] = max(minute[8], late_ms)
            else:
                self._delivery(receiver, event, fact.attempt, first_at=began_at)

    def _delivery(
        self, receiver: ReceiverRow, event: Numbered, attempts: int = 0, ended_at: int | None = None,
        ending: int | None = None, reason: str | None = None, first_at: int | None = None,
    ) -> None:  # fmt: skip
        key = (receiver.id, event.sequence)
        if key not in self.begun and event.sequence not in receiver.open:
            if (block := receiver.unseen.pop((event.sequence, event.position), None)) is not None:
                receiver.open[event.sequence] = (block, event.position)
                self._goes_on(receiver, event.sequence, attempts, ended_at, ending, reason, first_at)
                return
            self.begun[key] = [
                self.block, event.position, *key, event.id, event.again or None,
                milliseconds(event.stored_at),
                first_at, ended_at, ending, reason, attempts, event.type or None,
                milliseconds(event.published_at) or None,
            ]  # fmt: skip
            if ended_at is None:
                receiver.open[event.sequence] = (self.block, event.position)
            return
        self._goes_on(receiver, event.sequence, attempts, ended_at, ending, reason, first_at)

    def _goes_on(
        self, receiver: ReceiverRow, sequence: int, attempts: int, ended_at: int | None, ending: int | None,
        reason: str | None, first_at: int | None,
    ) -> None:  # fmt: skip
        """Update a delivery that has a row, in this batch or from an earlier one."""
        key = (receiver.id, sequence)
        if (row := self.begun.get(key)) is not None:
            row[7] = row[7] or first_at
            row[11] = max(row[11], attempts)
            if ended_at is not None:
                row[8:11] = ended_at, ending, reason
        else:
            if (ended := self.ended.get(key)) is None:
                ended = self.ended[key] = EndedRow(*receiver.open[sequence], *key)
            ended.first_at = ended.first_at or first_at
            ended.attempts = max(ended.attempts, attempts)
            if ended_at is not None:
                ended.ended_at, ended.ending, ended.reason = ended_at, ending, reason
        if ended_at is not None:
            receiver.open.pop(sequence, None)

    def _minute(self, receiver: ReceiverRow, at: int) -> list[int]:
        """The totals of a minute.

        Attempts, delivered, failed, throttled, dead; sum and maximum of latency and lateness; POSTs."""
        return self.minutes.setdefault((at // 60_000, receiver.id), [0] * 10)

    def _discard(
        self, receiver: ReceiverRow, at: int, first: int, last: int, ending: int, reason: str | None = None
    ) -> None:
        """End the open deliveries between two positions."""
        for sequence, (_, position) in list(receiver.open.items()):
            if first <= position <= last:
                self._goes_on(receiver, sequence, 0, at, ending, reason, None)

    def _change(
        self, receiver: ReceiverRow, at: int, position: int, ordinal: int, kind: str, detail: dict[str, Any]
    ) -> None:
        text = _encoder.encode(detail).decode()
        self.changes.append((receiver.id, at, position, ordinal, kind, text))

    def _recovered(self, receiver: ReceiverRow, fact: f.Delivered, position: int, ordinal: int) -> None:
        at, since = milliseconds(fact.at), receiver.failing_since
        if since is not None and at - since >= FAILING_EPISODE_MIN_MS:
            detail = {"since": since, "failures": receiver.failures}
            self._change(receiver, at, position, ordinal, "recovered", detail)
        receiver.failing_since, receiver.failures = None, 0


def receiver_of(row: Any) -> ReceiverRow:
    """The receiver in a row of its table, as every store selects it."""
    return ReceiverRow(
        row[1], row[0], row[2], failing_since=row[3], failures=row[4], disabled=row[5], paused=bool(row[6]),
        last_at=row[7], last_status=row[8], last_error=row[9], facts_since=row[10], bytes_since=row[11],
        base_bytes=row[12], based_at=row[13], last_position=row[14],
    )  # fmt: skip


def note_unended(receivers: Iterable[ReceiverRow], rows: Iterable[Any]) -> None:
    """Note for each of these receivers which deliveries have no ending, as every store selects them."""
    by_id = {each.id: each for each in receivers}
    for receiver, sequence, block, position, ended_at in rows:
        if ended_at is None:
            by_id[receiver].open[sequence] = (block, position)
        else:
            by_id[receiver].unseen[sequence, position] = block


def base_row(base: BaseRow) -> tuple[Any, ...]:
    """The values of a base, in the order of the columns of its table."""
    return (base.receiver, base.position, base.at, base.origin, base.state)


def configuration_row(receiver: int, put: ConfigurationRow) -> tuple[Any, ...]:
    """The values of a configuration, in the order of the columns of its table."""
    return (receiver, put.at, put.revision, put.document, put.changed_by, put.replaced)


def _pace_row(receiver: int, fact: f.PaceSet, position: int, ordinal: int) -> Row:
    """The values of a learnt pace, in the order of the columns of its table."""
    return (
        receiver, milliseconds(fact.at), position, ordinal, _encoder.encode(fact.pace).decode(),
        fact.per_second, fact.in_flight, fact.limited_by, fact.in_flight_by,
    )  # fmt: skip


def milliseconds(at: float) -> int:
    return round(at * 1000)


def key_of(receiver: str, shard: int) -> str:
    """The name of a receiver in the ledger; each shard has its own record of unknown receivers."""
    return f"{UNKNOWN_RECEIVERS}.{shard}" if receiver == UNKNOWN_RECEIVERS else receiver


def names_in(flushes: Iterable[ReadFlush]) -> dict[str, int]:
    """All receivers named in the flushes, each with its shard."""
    return {
        key_of(fact.receiver, read.shard): read.shard
        for read in flushes
        for fact in read.flush.facts
        if not isinstance(fact, f.Claimed)
    }


def _verdict(fact: f.AttemptFailed) -> int:
    if fact.ours:
        return schema.OVERLOAD
    if fact.gone:
        return schema.GONE
    return schema.REJECTED if fact.rejected else schema.FAILED


def _failing_later(receiver: ReceiverRow, fact: f.AttemptFailed | f.Throttled) -> None:
    """Leave out the time in which a node or proxy made attempts fail."""
    if fact.failing_since is not None:
        receiver.failing_since = milliseconds(fact.failing_since)


def _failed(receiver: ReceiverRow, fact: f.AttemptFailed) -> None:
    """Count a failure of the receiver, under the same conditions as `evolve`."""
    _failing_later(receiver, fact)
    if fact.rejected or fact.gone or fact.ours or not fact.is_trial:
        return
    receiver.failures += 1
    if receiver.failing_since is None:
        receiver.failing_since = milliseconds(fact.at)


def _hold(receiver: ReceiverRow, fact: f.Fact) -> None:
    """Record the reason why a receiver is held back after this fact."""
    match fact:
        case f.Paused():
            receiver.paused = True
        case f.Disabled(reason=reason):
            receiver.disabled = reason
        case f.Resumed() | f.Retargeted() | f.Removed():
            receiver.failing_since, receiver.failures, receiver.disabled = None, 0, None
            receiver.paused = receiver.paused and not isinstance(fact, f.Resumed)
        case f.Forgot():
            receiver.failing_since, receiver.failures = None, 0


def _limit_detail(limit: RateLimit) -> dict[str, Any]:
    """A rate limit as it is stored; `others` only if it has any."""
    detail: dict[str, Any] = {"per_second": limit.per_second, "burst": limit.burst}
    return detail | ({"others": [_limit_detail(each) for each in limit.others]} if limit.others else {})


def _detail(fact: f.Fact) -> dict[str, Any] | None:
    """The part of a fact that the history keeps; None: it is not part of the history."""
    match fact:
        case f.Resumed(by=by):
            return {"by": by} if by else {}
        case f.Paused() | f.Retargeted() | f.Opened() | f.Repaired():
            return {}
        case f.Disabled(reason=reason):
            return {"reason": reason}
        case f.Removed(discarded=discarded, left_out=left_out):
            return {"discarded": discarded} | ({"left_out": left_out} if left_out else {})
        case f.Forgot(discarded=discarded, left_out=left_out, by=by):
            detail = {"discarded": discarded} | ({"left_out": left_out} if left_out else {})
            return detail | ({"by": by} if by else {})
        case f.DeadLettered(events=(event,), reason="skipped", by=by):
            return {"sequence": event.sequence, "event_id": event.id} | ({"by": by} if by else {})
        case f.Missing(first=first, last=last):
            return {"first": first, "last": last}
        case f.RateSet(limit=limit):
            return {} if limit is None else _limit_detail(limit)
        case f.WindowSet(size=size):
            return {"size": size}
        case f.AlertRaised(alert=alert, why=why) | f.AlertRecovered(alert=alert, why=why):
            return {"alert": alert, "why": why}
        case f.TransformSet(revision=revision, transform=transform):
            return {} if transform is None else {"revision": revision}
        case f.HandshakeSucceeded(per_minute=per_minute):
            return {} if per_minute is None else {"per_minute": per_minute}
        case _:
            return None
