"""The journals of all shards, folded as they are stored: the truth for all checks.

The fold is the product's own `evolve`. It is checked by a second opinion on numbering, in the plainest words:
which event gets which number, and why those that lie between got none.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from msgspec import UNSET

from actors.ids import UNKNOWN_RECEIVERS
from actors.machine import facts as f
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.numbering import Numbered
from actors.machine.state import OPEN_MAX, State
from streams.journal.envelope import Flush

Fail = Callable[[str], None]


class Deliveries:
    """The events that JetStream accepted, by position and by receiver, in the order of the stream.

    `discarded` has what a node found to discard of a receiver, behind a position: what was deleted is there
    for a replica that lags, and for a page that was read before.
    """

    def __init__(self) -> None:
        self.events: dict[int, tuple[str, Event]] = {}
        self.positions: dict[str, list[int]] = {}
        self.deleted: set[int] = set()
        self.discarded: dict[tuple[str, str, int], set[int]] = {}

    def add(self, receiver: str, event: Event) -> None:
        self.events[event.position] = (receiver, event)
        self.positions.setdefault(receiver, []).append(event.position)

    def delete(self, position: int) -> None:
        """An operator has deleted the message: it will not be read any more."""
        self.deleted.add(position)

    def event(self, position: int) -> Event:
        return self.events[position][1]

    def between(self, receiver: str, after: int, to: int) -> list[int]:
        """The receiver's positions in (after, to] that are not deleted, in order."""
        return [each for each in self.stored_between(receiver, after, to) if each not in self.deleted]

    def stored_between(self, receiver: str, after: int, to: int) -> list[int]:
        """All of the receiver's positions in (after, to], in order."""
        positions = self.positions.get(receiver, [])
        return positions[bisect_right(positions, after) : bisect_right(positions, to)]


class Numbering:
    """The second opinion on one receiver."""

    def __init__(self, receiver: str, deliveries: Deliveries, fail: Fail) -> None:
        self.receiver = receiver
        self.position = 0
        self.sequence = 0
        self.source = 0
        self._keys: list[tuple[str, str]] = []
        self._size = 256
        self._change: tuple[int, int] | None = None
        self.refused: set[int] = set()
        self._numbered: set[int] = set()
        self._deliveries = deliveries
        self._fail = fail

    def is_duplicate(self, position: int) -> bool:
        """True if the event there must not be given to the receiver as the next one."""
        size = self._change[1] if self._change and position > self._change[0] else self._size
        event = self._deliveries.event(position)
        return 0 < event.source <= self.source or _key(event) in self._keys[-size:]

    def is_passed(self, position: int) -> bool:
        """True if the event there got no number, or gets none if its turn has not come."""
        if position <= self.position:
            return position not in self._numbered
        return self.is_duplicate(position)

    def take(self, fact: f.Fact, found: set[int]) -> None:
        """Fold the fact; where it discards, these positions are what was found to be discarded."""
        match fact:
            case f.Delivered(events=events) | f.AttemptFailed(events=events) | f.Throttled(events=events):
                self._number_all(events)
            case f.EventsNumbered(events=events) | f.Started(events=events) | f.DeadLettered(events=events):
                self._number_all(events)
            case f.Opened(position=position, window=window):
                self._move(position, self.sequence + 1)
                if not self.sequence and not self._keys:
                    self._size = window
            case f.Removed() | f.Forgot():
                self._discard(fact, found)
            case f.Missing(reason=f.ERASED):
                pass  # It has its number, and leaves the stream only after this.
            case f.Missing(first=first, last=last, next_sequence=following, source=source):
                if there := self._deliveries.between(self.receiver, first - 1, last):
                    self._fail(f"{self.receiver}: {there} are recorded as missing, and nobody took them")
                self.source = max(self.source, source)
                self._move(last, following)
            case f.EventRefused(position=position):
                self.source = max(self.source, self._deliveries.event(position).source)
                self._move(position, self.sequence + 1)
            case f.WindowSet(size=size, above=above):
                if above > self.position:
                    self._change = (above, size)
                else:
                    self._size, self._change, self._keys = size, None, self._keys[-size:]

    def _discard(self, fact: f.Removed | f.Forgot, found: set[int]) -> None:
        """Counts discarded events as numbered, except those that were deleted and are not found any more.

        Then the window has the last ids, also where it was too narrow for them when they had their turn.
        """
        keys, numbered = self._keys, 0
        for position in self._deliveries.stored_between(self.receiver, self.position, fact.position):
            if position in self._deliveries.deleted and position not in found:
                continue
            if not self.is_duplicate(position):
                event = self._deliveries.event(position)
                self._remember(position, event)
                keys, numbered = [*keys, _key(event)], numbered + 1
        if fact.next_sequence <= self.sequence + numbered:
            self._fail(f"{self.receiver}: {numbered} events are discarded, and numbers go on: {fact}")
        if numbered and self._change and fact.position > self._change[0]:
            self._size, self._change = self._change[1], None
        self._keys = keys[-self._size :]
        self._move(fact.position, fact.next_sequence)

    def _remember(self, position: int, event: Event) -> None:
        if self._change and position > self._change[0]:
            self._size, self._change = self._change[1], None
        self.source = max(self.source, event.source)
        self._numbered.add(position)
        self._keys = [*self._keys, _key(event)][-self._size :]

    def _move(self, position: int, next_sequence: int) -> None:
        self.position = max(self.position, position)
        self.sequence = max(self.sequence, next_sequence - 1)

    def _number_all(self, events: tuple[Numbered, ...]) -> None:
        for each in events:
            if each.position > self.position:
                self._number(each.position, each.sequence, each.id)

    def _number(self, position: int, sequence: int, id_: str) -> None:
        event, who = self._deliveries.event(position), f"{self.receiver}: the event at {position}"
        for passed in self._deliveries.between(self.receiver, self.position, position - 1):
            if passed not in self.refused and not self.is_duplicate(passed):
                self._fail(f"{who} got number {sequence}, but the one at {passed} before it got none")
        if position in self.refused:
            self._fail(f"{who} got number {sequence}, but was turned away")
        if self.is_duplicate(position):
            self._fail(f"{who} got number {sequence}, but is a duplicate, by its id or its source")
        if sequence != self.sequence + 1:
            self._fail(f"{who} got number {sequence} after {self.sequence}")
        if event.id != id_:
            self._fail(f"{who} has id {event.id}, the journal says {id_}")
        self.position, self.sequence = position, sequence
        self._remember(position, event)


def _key(event: Event) -> tuple[str, str]:
    return event.id, event.again


def _routed(flush: Flush) -> int:
    assert flush.routed is not UNSET
    return flush.routed


def _fallen(before: Flush, after: Mapping[str, int]) -> dict[str, int]:
    """The parked tenants whose events were routed from a higher position on, by the flush before.

    Beyond `routed`, events come again to a new owner, also if a parked tenant's were routed.
    """
    known, end = before.parked_tenants, _routed(before) + 1
    return {tenant: at for tenant, at in after.items() if at < min(end, known.get(tenant, end))}


class FoldedJournal:
    """The journal of one shard. `past` has each receiver's state after each flush that changed it."""

    def __init__(self, shard: int, deliveries: Deliveries, fail: Fail) -> None:
        self.shard = shard
        self.flushes: list[tuple[int, Flush]] = []
        self.by_position: dict[int, Flush] = {}
        self.states: dict[str, State] = {}
        self.past: dict[str, list[tuple[int, State]]] = {}
        self.numberings: dict[str, Numbering] = {}
        self.claims: dict[str, f.Claimed] = {}
        self.epoch = 0
        self._acked_to = 0
        self.attempts: dict[int, int] = {}
        self.delivered: dict[str, set[int]] = {}
        self._deliveries = deliveries
        self._fail = fail

    @property
    def floor(self) -> int:
        return self.flushes[-1][1].floor if self.flushes else 0

    @property
    def routed(self) -> int:
        """The position up to which the partition of the same number is routed, by the journal."""
        return _routed(self.flushes[-1][1]) if self.flushes else 0

    def newly_acked(self, position: int) -> range:
        """The positions that this owner acks for the first time, with one ack for all up to there."""
        before, self._acked_to = self._acked_to, max(self._acked_to, position)
        return range(before + 1, position + 1)

    def add(self, position: int, flush: Flush) -> None:
        """The server has stored it."""
        self._check_order(flush)
        self.flushes.append((position, flush))
        self.by_position[position] = flush
        changed: dict[str, None] = {}
        for fact in flush.facts:
            if isinstance(fact, f.Claimed):
                self.claims[flush.node], self.epoch, self._acked_to = fact, fact.epoch, flush.floor
            else:
                self._fold(fact, flush.node)
                changed[fact.receiver] = None
        for receiver in changed:
            self.past.setdefault(receiver, []).append((position, self.states[receiver]))

    def _check_order(self, flush: Flush) -> None:
        who = f"flush {flush.flush} of {flush.node} under epoch {flush.epoch}"
        last = self.flushes[-1][1] if self.flushes else None
        if last and flush.epoch < last.epoch:
            self._fail(f"shard {self.shard}: {who} follows one of epoch {last.epoch}")
        expected = last.flush + 1 if last and last.epoch == flush.epoch else 0
        if flush.flush != expected:
            self._fail(f"shard {self.shard}: {who} should have number {expected}")
        if last and flush.floor < last.floor:
            self._fail(f"shard {self.shard}: {who} takes the floor from {last.floor} to {flush.floor}")
        if last and _routed(flush) < _routed(last):
            self._fail(f"shard {self.shard}: {who} takes `routed` from {last.routed} to {flush.routed}")
        if last and (fallen := _fallen(last, flush.parked_tenants)):
            self._fail(f"shard {self.shard}: {who} sets {fallen} back, parked before: {last.parked_tenants}")
        if last and last.marks.raised(flush.marks) != flush.marks:
            self._fail(f"shard {self.shard}: {who} takes the marks from {last.marks} to {flush.marks}")

    def _fold(self, fact: f.Fact, node: str) -> None:
        receiver = fact.receiver
        before = self.states.get(receiver) or State(receiver=receiver)
        self.states[receiver] = state = evolve(before, fact)
        found = self._deliveries.discarded.get((node, receiver, before.frontier.position), set())
        self.numbering(receiver).take(fact, found)
        self._count_attempts(fact)
        if len(state.open) > OPEN_MAX:
            self._fail(f"{receiver}: {len(state.open)} events are open")
        if isinstance(fact, f.TurnedAway):
            for each in fact.events:
                self.numbering(each.receiver).refused.add(each.position)
        if isinstance(fact, f.Delivered) and fact.kind == "event":
            self.delivered.setdefault(receiver, set()).update(each.position for each in fact.events)

    def _count_attempts(self, fact: f.Fact) -> None:
        """Each event has its own: 1, 2, 3 and so on."""
        match fact:
            case f.Delivered() | f.AttemptFailed() | f.Throttled():
                for position in (each.position for each in fact.events):
                    self.attempts[position] = count = self.attempts.get(position, 0) + 1
                    if fact.attempt != count:
                        self._fail(f"{fact.receiver}: attempt {count} at {position} is called {fact.attempt}")
            case f.DeadLettered(receiver=receiver, attempts=attempts):
                for position in (each.position for each in fact.events):
                    if attempts != (made := self.attempts.get(position, 0)):
                        self._fail(f"{receiver}: {position} is dead after {made} attempts, not {attempts}")

    def numbering(self, receiver: str) -> Numbering:
        if receiver not in self.numberings:
            self.numberings[receiver] = Numbering(receiver, self._deliveries, self._fail)
        return self.numberings[receiver]

    def state_at(self, receiver: str, position: int) -> State:
        """The state as of that journal position."""
        return next((state for _, state in self._back_from(receiver, position)), State(receiver=receiver))

    def last_change(self, receiver: str, position: int) -> int:
        """The last journal position up to that one which names the receiver; 0 for none."""
        return next((at for at, _ in self._back_from(receiver, position)), 0)

    def _back_from(self, receiver: str, position: int) -> Iterator[tuple[int, State]]:
        return (each for each in reversed(self.past.get(receiver, [])) if each[0] <= position)

    # What may be let go.

    def is_released(self, position: int) -> bool:
        """True if the stored facts release the delivery: settled, parked, a duplicate, or undecided."""
        receiver, _ = self._deliveries.events[position]
        state = self.states.get(receiver) or State(receiver=receiver)
        return state.parked or self.is_settled(receiver, position, state) or self.is_undecided(position)

    @property
    def unknown(self) -> State:
        """The record of unknown receivers."""
        return self.states.get(UNKNOWN_RECEIVERS) or State(receiver=UNKNOWN_RECEIVERS)

    def is_undecided(self, position: int) -> bool:
        """True if the delivery is still stored as one of an unknown receiver."""
        receiver, _ = self._deliveries.events[position]
        record = self.unknown
        return record.parked and position > record.frontier.position and receiver not in self.states

    def unsettled(self, receiver: str) -> list[int]:
        """The positions up to the floor at which something of the receiver is open or has no number."""
        state = self.states[receiver]
        waiting = self._deliveries.between(receiver, state.frontier.position, self.floor)
        waiting = [each for each in waiting if each not in self.numbering(receiver).refused]
        return [each.position for each in state.open if each.position <= self.floor] + waiting

    def is_settled(self, receiver: str, position: int, state: State) -> bool:
        if position <= state.frontier.position:
            return all(each.position != position for each in state.open)
        numbering = self.numbering(receiver)
        if position in numbering.refused:
            return True
        between = self._deliveries.between(receiver, state.frontier.position, position)
        return all(each in numbering.refused or numbering.is_duplicate(each) for each in between)

    def left(self, receiver: str, positions: list[int]) -> list[int]:
        """The positions that were not turned away."""
        refused = self.numbering(receiver).refused
        return [each for each in positions if each not in refused]
