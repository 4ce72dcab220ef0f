"""A random explorer of the machine of one receiver, crashes included; `test_machine.py` runs it.

A small shell performs whatever step the machine asks for, with whatever outcome the seed draws. Facts wait to
be confirmed; a crash loses some of those that are not, and the next owner folds the rest. What was handed
out is handed out again only after a crash, and only beyond the floor.

Checked at every step: a number names one event for ever, an event has one number for ever; none is posted
before those ahead of it are settled; strict order has one event open; a burial rests on what is confirmed;
the state survives JSON. At the end: the frontier never fell, the live state is the fold of the journal, and
once all goes well, everything that was published is settled.
"""

from random import Random

import msgspec
from msgspec.structs import replace

from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.bucket import Bucket, inherit, refill, take
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.event import Event
from actors.machine.evolve import evolve
from actors.machine.owed import steps as s
from actors.machine.owed.next_step import next_step
from actors.machine.owed.view import Cutoff, View
from actors.machine.state import State, open_entry
from actors.policy import Policy, Rate, Retry
from tests.unit.machine import NO_ANSWER, NOW, answer, event, policy

RULES = {
    "above": "another window holds only beyond whatever anybody can have posted",
    "dead_first": "a dead letter is confirmed before anything that follows it",
    "removal_first": "a removal is confirmed before anything that follows it",
    "gap": "a removal leaves room for the numbers of what it discards",
    "seen": "a receiver unparks only when all that was seen is settled",
}
OVERTAKEN = {"dead_first": (f.DeadLettered,), "removal_first": (f.Removed, f.Opened, f.Retargeted, f.RateSet)}
PATIENT = Retry(base_s=0.05, cap_s=0.05, max_age_s=432000)
POLICIES = (
    policy(retry=PATIENT), policy(dedup_window=2), policy(dedup_window=3), policy(dedup_window=6),
    policy(url="https://other.example"), policy(paused=True),
    policy(retry=Retry(max_attempts=2, rejected_attempts=1, max_age_s=60)),
    policy(rate=Rate(limit=1, burst=2)), policy(rate=Rate(limit=1, per="hour", burst=1)),
    policy(backlog_max=2),
)  # fmt: skip
OUTCOMES = (200, 200, 200, 200, 500, 429, 410, 400, 0)
"""0: no answer."""


class ReceiverWorld:
    """One receiver, its stream, its journal, and the memory of whoever owns it."""

    def __init__(self, seed: int, off: str = "") -> None:
        self.random = Random(seed)
        self.off = off
        self.unhurried = (*NEEDS_NO_CONFIRMATION, *OVERTAKEN.get(off, ()))
        self.stream: list[Event] = []
        self.journal: list[f.Fact] = []
        self.confirmed = 0
        self.now, self.epoch = NOW, 0
        self.number_of: dict[int, int] = {}
        self.position_of: dict[int, int] = {}
        self.taken: set[int] = set()
        self.policy: Policy | None = POLICIES[0]
        self.take_over()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check()
        self.finish()

    # ---- ownership

    def take_over(self) -> None:
        """Fold what the journal holds, and begin with an empty memory."""
        self.epoch += 1
        self.state = self.fold(len(self.journal))
        self.confirmed = len(self.journal)
        self.claim_position, frontier = len(self.stream), self.state.frontier.position
        self.received = self.random.randint(frontier, len(self.stream)) if self.state.parked else frontier
        self.in_flight: Event | None = None
        self.adopted: Policy | None = None
        self.granted = self.absent_to = 0
        self.cutoff: Cutoff | None = None
        self.bucket = self.state.bucket
        if self.bucket and self.state.limit:
            self.bucket = inherit(
                self.bucket, self.state.limit, epoch=self.epoch, claimed_at=self.now, unclean=None,
                unsettled=True,
            )  # fmt: skip
        self.drop()

    def drop(self) -> None:
        self.mailbox: list[Event] = []
        self.read_to = max(self.state.frontier.position, self.in_flight.position if self.in_flight else 0)

    def record(self, command: c.Command) -> None:
        for fact in decide(self.state, self.policy, command, self.now, self.full()):
            stored = msgspec.json.decode(msgspec.json.encode(fact), type=f.Fact)
            assert stored == fact
            self.journal.append(stored)
            self.state = evolve(self.state, stored)

    def full(self) -> Bucket | None:
        if self.bucket and self.state.limit:
            self.bucket = refill(self.bucket, self.state.limit, self.now, self.epoch)
            return self.bucket
        return None

    def spend(self) -> Bucket | None:
        bucket = self.full()
        self.bucket = take(bucket) if bucket else None
        return self.bucket

    @property
    def view(self) -> View:
        hurried = [fact for fact in self.journal[self.confirmed :] if not isinstance(fact, self.unhurried)]
        held = {each.position: each for each in self.mailbox if open_entry(self.state, each.position)}
        waiting = [each for each in self.mailbox if each.position not in held]
        return View(
            head=waiting[0] if waiting else None,
            waiting=waiting,
            held=held,
            in_flight=(self.in_flight.position,) if self.in_flight else (),
            read_to=self.read_to,
            seen=0 if self.off == "seen" else self.received,
            cutoff=self.cutoff,
            holding=not self.state.parked and bool(self.mailbox),
            unconfirmed=bool(hurried),
            granted=self.granted,
            adopted=self.adopted is self.policy,
            absent_to=self.absent_to,
            bucket=self.bucket,
        )

    # ---- what may happen

    def step(self) -> None:
        random = self.random
        match random.random():
            case draw if draw < 0.16:
                self.publish()
                if random.random() < 0.6:
                    self.arrive()
            case draw if draw < 0.20:
                self.arrive()
            case draw if draw < 0.28:
                self.confirmed = len(self.journal)
            case draw if draw < 0.32:
                self.crash()
            case draw if draw < 0.38:
                self.policy = replace(random.choice(POLICIES))
            case draw if draw < 0.39:
                self.policy = None
            case draw if draw < 0.41:
                self.record(c.ResumeReceiver())
            case draw if draw < 0.43:
                self.ping()
            case draw if draw < 0.44:
                self.lose_an_event()
            case draw if draw < 0.45:
                self.cutoff = Cutoff(random.randint(0, len(self.stream)), "evicted")
            case draw if draw < 0.46:
                self.forget_backlog()
            case draw if draw < 0.54:
                self.now += random.choice((0.1, 1.0, 5.0, 90.0))
            case draw if draw < 0.72 and self.in_flight:
                self.end(random.choice(OUTCOMES))
            case _:
                self.perform(next_step(self.state, self.policy, self.view, self.now))

    def publish(self) -> None:
        """A direct send, a copy of the router's, a copy that comes twice, or something sent again."""
        random, position = self.random, len(self.stream) + 1
        again = "r1" if random.random() < 0.1 else ""
        source = 0 if again or random.random() < 0.5 else max(1, position - random.choice((0, 0, 0, 2)))
        name = random.choice("abcdefgh")
        self.stream.append(event(position, name=name, at=self.now, source=source, again=again))

    def arrive(self) -> None:
        """What was published is handed out; a parked receiver leaves it in the stream."""
        if not self.state.parked:
            self.mailbox += self.stream[max(self.received, self.read_to) :]
            self.read_to = len(self.stream)
        self.received = len(self.stream)

    def read(self, count: int) -> None:
        found = self.stream[self.read_to : self.received][:count]
        self.mailbox += found
        self.read_to = found[-1].position if found else self.received

    def end(self, outcome: int) -> None:
        """The attempt in flight comes back."""
        assert self.in_flight is not None
        tried, self.in_flight = self.in_flight, None
        result = answer(outcome) if outcome else NO_ANSWER
        if outcome == 200:
            self.taken.add(self.number_of[tried.position])
        self.record(c.RecordOutcome(tried, result))
        if open_entry(self.state, tried.position):
            self.mailbox.insert(0, tried)

    def crash(self) -> None:
        del self.journal[self.confirmed + self.random.randrange(5) :]
        self.take_over()

    def ping(self) -> None:
        if self.policy is not None:
            self.record(c.StartPing())
            result = answer(self.random.choice((200, 429, 500)))
            self.record(c.RecordOutcome(None, result))

    def lose_an_event(self) -> None:
        """It is gone from the stream, and was known to be there: open, and not in memory."""
        entry = self.state.open[0] if self.state.open else None
        if entry and not self.in_flight and all(each.position != entry.position for each in self.mailbox):
            self.record(c.MissEvents(entry.position, entry.position))

    def forget_backlog(self) -> None:
        """Somebody says that what waits is not wanted."""
        waiting, position = self.waiting
        self.record(c.ForgetBacklog(position, waiting))
        self.mailbox = [each for each in self.mailbox if each.position > position]
        self.read_to = max(self.read_to, position)

    @property
    def waiting(self) -> tuple[int, int]:
        """How much lies beyond the frontier, as far as anybody can have posted, and how far that is."""
        position = max(self.claim_position, self.received, self.read_to)
        return sum(self.state.frontier.position < each.position <= position for each in self.stream), position

    # ---- what the shell does

    def perform(self, step: s.Step) -> None:
        match step:
            case s.Post(given_event, sequence, _, free):
                if not free:
                    self.spend()
                self.granted = 0
                self.mailbox.remove(given_event)
                self.in_flight = given_event
                self.check_number(given_event.position, sequence)
                self.check_turn(sequence)
            case c.StartAttempt(given_event):
                self.granted = given_event.position
                self.spend()
                self.record(step)
            case c.GiveUpEvents(events):
                gone = {each.position for each in events}
                self.mailbox = [each for each in self.mailbox if each.position not in gone]
                self.record(step)
            case c.DropRepeat(given_event) | c.RefuseEvent(given_event):
                self.mailbox.remove(given_event)
                self.record(step)
            case s.Bury(burials):
                assert set(burials) <= set(self.fold(self.confirmed).burials)
                for each in burials:
                    if each.sequence is not None:
                        self.check_number(each.position, each.sequence)
                self.record(c.MarkBuried(tuple(each.position for each in burials)))
            case s.Read():
                self.read(2)
            case s.Fetch(position):
                self.mailbox.insert(0, self.stream[position - 1])
            case s.Ask():
                self.ask()
            case c.OpenReceiver():
                self.record(c.OpenReceiver(self.state.frontier.position, 16))
            case c.Adopt():
                self.reconfigure()
            case s.Park():
                self.record(c.ParkReceiver(self.mailbox[0].stored_at if self.mailbox else None))
                self.drop()
            case c.UnparkReceiver():
                self.record(step)
            case s.WaitUntil(at):
                assert at > self.now

    def ask(self) -> None:
        """The leader says that there is no such receiver."""
        if not self.state.opened:
            self.absent_to = self.read_to
            return
        waiting, position = self.waiting
        self.record(c.RemoveReceiver(position, 0 if self.off == "gap" else waiting))
        self.mailbox = [each for each in self.mailbox if each.position > position]
        self.read_to = max(self.read_to, position)

    def reconfigure(self) -> None:
        limit, above = self.state.limit, max(self.claim_position, self.received, self.read_to)
        above = 0 if self.off == "above" else above
        self.record(c.Adopt(above, self.epoch))
        self.adopted = self.policy
        if self.state.limit != limit:
            self.bucket = self.state.bucket

    # ---- what must hold

    def check_number(self, position: int, sequence: int) -> None:
        assert self.number_of.setdefault(position, sequence) == sequence
        assert self.position_of.setdefault(sequence, position) == position

    def check_turn(self, sequence: int) -> None:
        if sequence - 1 in self.position_of and sequence - 1 not in self.taken:
            assert self.fold(self.confirmed).settled_sequence >= sequence - 1

    def check(self) -> None:
        assert len(self.state.open) <= 1
        for entry in self.state.open:
            assert entry.position <= self.state.frontier.position
            assert entry.sequence <= self.state.frontier.sequence
        assert msgspec.json.decode(msgspec.json.encode(self.state), type=State) == self.state

    def fold(self, count: int) -> State:
        """The state after so many facts."""
        state = State(receiver="acme.billing")
        for fact in self.journal[:count]:
            before, state = state.frontier, evolve(state, fact)
            assert state.frontier.position >= before.position
            assert state.frontier.sequence >= before.sequence
        return state

    def finish(self) -> None:
        """All goes well from now on: then nothing is left to do."""
        assert self.fold(len(self.journal)) == self.state
        self.policy = POLICIES[0]
        self.record(c.ResumeReceiver())
        for _ in range(60 + 8 * len(self.stream)):
            if self.in_flight:
                self.end(200)
            self.arrive()
            self.confirmed = len(self.journal)
            self.now += 5
            self.perform(next_step(self.state, self.policy, self.view, self.now))
        assert (self.state.open, self.state.burials, self.mailbox) == ((), (), [])
        settled = set[int]()
        for fact in self.journal:
            match fact:
                case f.Delivered(events=events) | f.DeadLettered(events=events):
                    settled |= {each.position for each in events}
                case f.Repeated(position=position) | f.Refused(position=position):
                    settled.add(position)
                case f.Missing(first=first, last=last):
                    settled |= set(range(first, last + 1))
                case f.Removed(position=position) | f.Forgot(position=position):
                    settled |= set(range(1, position + 1))
        assert {each.position for each in self.stream} <= settled
