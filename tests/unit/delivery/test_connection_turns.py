"""Turns in a queue: tenants take turns, and each tenant's receivers; a receiver's attempts go in order."""

import asyncio
from collections import Counter
from heapq import heappop, heappush
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from angarium.delivery.connections.connection_turns import ConnectionSlots, SlotLimit, TurnQueue, Waiter

SERVICE_S = 0.875
"""Just below what the slow lane takes for slow; exact in binary, as all times here."""
CONNECTIONS = 60
RECEIVERS = st.sampled_from(["a.1", "a.2", "a.3", "b.1", "b.2", "c.1"])


def filled(*receivers: str) -> TurnQueue[int]:
    queue: TurnQueue[int] = TurnQueue()
    for number, receiver in enumerate(receivers):
        queue.add(receiver, number)
    return queue


def emptied(queue: TurnQueue[int]) -> list[int]:
    return [queue.take() for _ in range(queue.count)]


def test_tenants_have_their_turns_while_one_has_many_attempts_waiting() -> None:
    assert emptied(filled("a.1", "a.1", "a.1", "b.1", "a.1", "c.1", "b.1")) == [0, 3, 5, 1, 6, 2, 4]


def test_within_a_tenant_receivers_have_their_turns() -> None:
    assert emptied(filled("a.1", "a.1", "a.1", "a.2", "a.3", "a.2")) == [0, 3, 4, 1, 5, 2]


def test_a_receivers_turn_comes_though_other_tenants_come_and_go() -> None:
    queue = filled("a.1", "a.1", "a.2")
    for number in range(10, 14):
        queue.add("b.1", number)
    assert emptied(queue) == [0, 10, 2, 11, 1, 12, 13]


def test_a_waiter_that_leaves_without_a_turn_changes_no_other_turn() -> None:
    queue = filled("a.1", "a.2", "b.1", "a.1", "c.1")
    queue.remove("a.1", 0)
    queue.remove("b.1", 2)
    assert list(queue) == [3, 1, 4]
    assert emptied(queue) == [3, 4, 1]


class QueueAndLists(RuleBasedStateMachine):
    """The queue compared with a naive one: lists of lists, looked through each time."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: TurnQueue[int] = TurnQueue()
        self.naive: list[tuple[str, list[tuple[str, list[int]]]]] = []
        self.waiting: dict[int, str] = {}
        self.next = 0

    @rule(receiver=RECEIVERS)
    def add(self, receiver: str) -> None:
        tenant = receiver[0]
        if tenant not in [name for name, _ in self.naive]:
            self.naive.append((tenant, []))
        receivers = next(each for name, each in self.naive if name == tenant)
        if receiver not in [name for name, _ in receivers]:
            receivers.append((receiver, []))
        next(each for name, each in receivers if name == receiver).append(self.next)
        self.queue.add(receiver, self.next)
        self.waiting[self.next] = receiver
        self.next += 1

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        tenant, receivers = self.naive.pop(0)
        receiver, entries = receivers.pop(0)
        first = entries.pop(0)
        receivers += [(receiver, entries)] * bool(entries)
        self.naive += [(tenant, receivers)] * bool(receivers)
        assert self.queue.first() == first
        assert self.queue.take() == first
        del self.waiting[first]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(sorted(self.waiting)))
        self.queue.remove(self.waiting.pop(entry), entry)
        for _, receivers in self.naive:
            for _, entries in receivers:
                if entry in entries:
                    entries.remove(entry)
            receivers[:] = [each for each in receivers if each[1]]
        self.naive = [each for each in self.naive if each[1]]

    @invariant()
    def same(self) -> None:
        entries = [entry for _, receivers in self.naive for _, entries in receivers for entry in entries]
        assert list(self.queue) == entries
        assert self.queue.count == len(entries) == len(self.waiting)


QueueAndLists.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestQueueAndLists = QueueAndLists.TestCase


class HeldConnections:
    """Connections that are held for so long each, on a clock of its own, and a queue for them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waited: dict[str, float] = {}
        self._queue: TurnQueue[tuple[int, str, float]] = TurnQueue()
        self._ends: list[tuple[float, str]] = []
        self._number = count()

    def ask(self, receiver: str) -> None:
        self._queue.add(receiver, (next(self._number), receiver, self.now))
        self._serve()

    def run(self, until: float) -> None:
        """Let time pass; a greedy receiver asks again as soon as it was answered."""
        while self._ends and self._ends[0][0] <= until:
            self.now, answered = heappop(self._ends)
            if answered.startswith("greedy"):
                self.ask(answered)
            self._serve()
        self.now = until

    def _serve(self) -> None:
        while self._queue.count and len(self._ends) < CONNECTIONS:
            _, receiver, since = self._queue.take()
            heappush(self._ends, (self.now + SERVICE_S, receiver))
            self.waited[receiver] = max(self.waited.get(receiver, 0.0), self.now - since)


def test_wide_receivers_of_one_tenant_delay_others_by_one_answer_at_most() -> None:
    held = HeldConnections()
    for number in range(16 * 256):
        held.ask(f"greedy.r{number % 16}")
    for number in range(400):
        held.run(0.5 + number / 32)
        held.ask(f"victim{number % 4}.r")
    held.run(100.0)
    assert max(held.waited[f"victim{number}.r"] for number in range(4)) <= SERVICE_S
    assert max(held.waited.values()) > 16 * 256 / CONNECTIONS * SERVICE_S / 2


class Held(RuleBasedStateMachine):
    """Slots at three hosts and in all: never more than there are, and no attempt waits while one is free."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.whole: SlotLimit[str] = SlotLimit(4)
        self.hosts: list[SlotLimit[str]] = [SlotLimit(2), SlotLimit(2), SlotLimit(3)]
        self.slots = ConnectionSlots(self.whole)
        self.waiters: list[Waiter[str]] = []

    @rule(host=st.integers(0, 2), receiver=RECEIVERS, accepts_idle_of=st.sampled_from([None, "x"]))
    def enter(self, host: int, receiver: str, accepts_idle_of: str | None) -> None:
        waiter: Waiter[str] = Waiter(self.loop.create_future(), receiver, self.hosts[host], accepts_idle_of)
        self.slots.enter(waiter)
        self.waiters.append(waiter)

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        waiter = self.waiters.pop(data.draw(st.integers(0, len(self.waiters) - 1)))
        if waiter.received is None:
            self.slots.withdraw(waiter)

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancelled, and not told yet: it may still be given a place, and gives it back when it wakes."""
        data.draw(st.sampled_from(self.waiters)).future.cancel()

    @rule(bound=st.integers(0, 3))
    def give(self, bound: int) -> None:
        self.slots.give([*self.hosts, self.whole][bound], "thing", "x")

    @invariant()
    def bounds_hold(self) -> None:
        within = [each for each in self.waiters if each.queue is None and each.received is None]
        at_host = [each for each in self.waiters if each.queue is self.whole.queue]
        assert self.whole.taken == len(within)
        for host in self.hosts:
            assert host.taken == sum(each.host is host for each in (*within, *at_host))
        for bound in (self.whole, *self.hosts):
            assert bound.taken <= bound.capacity
            assert bound.taken == bound.capacity or not bound.queue.count
            assert Counter(bound.queue) == Counter(each for each in self.waiters if each.queue is bound.queue)

    @invariant()
    def who_has_what_it_waits_for_was_told(self) -> None:
        for each in self.waiters:
            assert each.future.done() == (each.queue is None) or each.future.cancelled()

    def teardown(self) -> None:
        for waiter in self.waiters:
            if waiter.received is None:
                self.slots.withdraw(waiter)
        assert [each.taken for each in (self.whole, *self.hosts)] == [0, 0, 0, 0]
        self.loop.close()


Held.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestHeld = Held.TestCase
