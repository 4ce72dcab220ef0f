"""The shell of one actor: it holds what is in memory, asks the machine for its next step, and performs it.

No decision is taken here and none is split by an await: `_advance` runs synchronously from step to step until
an attempt is to be made or nothing is owed. An attempt's own task goes on with the attempt that follows, so a
busy receiver costs one task, and a resting one costs none.
"""

import asyncio
import logging
import math
from typing import assert_never

from actors.answers import Answers
from actors.machine import commands as c
from actors.machine.bucket import inherit
from actors.machine.decide import NEEDS_NO_CONFIRMATION, decide
from actors.machine.event import Event
from actors.machine.facts import Burial, Delivered, Fact
from actors.machine.invariants import InvariantBroken, evolve_checked
from actors.machine.outcome import INTERNAL, Answered, Failed, NotSent, Outcome
from actors.machine.owed import steps as s
from actors.machine.owed.next_step import PARK_AFTER_S, next_step
from actors.machine.owed.view import Cutoff, View
from actors.machine.state import State, is_settled, open_entry
from actors.news import TELLING, news
from actors.policy import Policy
from actors.ports import Absent, Attempt, Batch, Invalid, Unavailable
from actors.runtime.alarm import Alarm
from actors.runtime.discarding import remove
from actors.runtime.home import ShardPorts
from actors.runtime.mailbox import MAILBOX_MAX
from actors.runtime.memory import UNCONFIRMED_MAX as UNCONFIRMED_MAX
from actors.runtime.memory import Known, Memory
from actors.status import answer_texts

ASK_AGAIN_S = 0.5
log = logging.getLogger(__name__)


class Shell(Memory):
    """One receiver at work. `state` is live; `confirmed` is what the confirmed journal says."""

    __slots__ = ("_alarm", "_landing", "absent_to", "adopted", "answers", "asking", "barrier", "burying",
                 "counting", "cutoff", "hold_count", "invalid", "last_answer", "loaded", "pinging",
                 "policy", "ready", "touched_at", "trimmed_at", "unconfirmed")  # fmt: skip

    def __init__(self, receiver: str, host: ShardPorts) -> None:
        super().__init__(receiver, host)
        self.loaded = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.policy: Policy | None = None
        self.adopted: Policy | None = None
        self.hold_count = 0
        self.cutoff: Cutoff | None = None
        self.trimmed_at = 0.0
        self.barrier = 0
        self.unconfirmed = 0
        self.counting = False
        self.burying = False
        self.pinging = 0
        self.asking = False
        self.invalid = False
        self.absent_to = 0
        self.last_answer: Answered | None = None
        self.answers = Answers()
        self.touched_at = host.clock.now()
        self._alarm = Alarm(self.wake)
        self._landing: asyncio.Future[None] | None = None

    # ---- coming into memory

    def begin(self, state: State, policy: Policy | None) -> None:
        """The state is known: go on from where it says."""
        host = self.host
        self.state = self.confirmed = state
        self.loaded = True
        self.policy = policy
        self.read_to = state.frontier.position
        self.seen = max(host.bindings.received, self.read_to) if state.parked else self.read_to
        self.counted = not state.parked
        if state.limit and state.bucket:
            self.bucket = inherit(
                state.bucket, state.limit, epoch=host.epoch, claimed_at=host.claimed_at, unclean=host.unclean,
                unsettled=host.may_have_posted(state, min(self.bound, default=0)),
            )  # fmt: skip
        early = self.mailbox.clear()
        unread = min(self.bound.keys() - {each.position for each in early}, default=math.inf)
        late = [position for position in self.bound if position >= unread]
        for event in early:
            if event.position < unread:
                self._take(event)
        for position in [each for each in late if is_settled(state, each)]:
            late.remove(position)
            self._release(position, host.recorder.index)
        if late:
            self.left += sum(position > self.seen for position in late)
            self.park()
        if not self.ready.done():
            self.ready.set_result(None)
        self.wake()

    def arrive(self, event: Event, reply: str) -> None:
        """The consumer handed out a message of this receiver."""
        binding = self.bound.get(event.position)
        if binding is not None:
            binding.reply = reply
            return
        now = self.touched_at = self.host.clock.now()
        self.bound[event.position] = self.host.bindings.bind(event.position, self.receiver, reply, now)
        if self.loaded:
            self._take(event)
            if not self._busy:
                self.wake()
        elif self.mailbox.fits(event):
            self.mailbox.append(event)

    def find(self, position: int, source: int, reply: str) -> None:
        """An event lies in the stream that came when nobody knew of this receiver, or is known already."""
        if (binding := self.bound.get(position)) is not None:
            binding.reply = reply or binding.reply
            return
        now = self.touched_at = self.host.clock.now()
        self.bound[position] = self.host.bindings.bind(position, self.receiver, reply, now)
        if self.loaded:
            self._take_found(position, source)
            if not self._busy:
                self.wake()

    @property
    def is_blank(self) -> bool:
        """Tells whether nothing was ever recorded of it, as far as is known, and nothing is held for it."""
        return not self.bound and self.state == State(receiver=self.receiver)

    # ---- facts

    def record(self, command: c.Command, now: float) -> None:
        """Decide, and take what was decided as done; the journal will confirm it."""
        for fact in decide(self.state, self.policy, command, now, self.bucket_at(now)):
            self._record(fact)

    def _record(self, fact: Fact) -> None:
        try:
            self.state = evolve_checked(self.state, fact)
        except InvariantBroken as broken:  # Nothing of it may be recorded, nor what would follow begin.
            self.host.refuse(str(broken))
            raise
        self.host.tally.decided(fact)
        hurried = not isinstance(fact, NEEDS_NO_CONFIRMATION)
        index = self.host.recorder.add(fact, self.state, hurried)
        if hurried:
            self.barrier = index
        elif type(fact) is Delivered:
            self.unconfirmed += 1

    def confirm(self, fact: Fact, state: State) -> None:
        """The journal holds `fact`; the host wakes afterwards."""
        kind = type(fact)
        if kind in TELLING or (kind is Delivered and self.confirmed.failing_since is not None):
            told = news(self.confirmed, fact, state, self.policy, invalid=self.invalid)
            if told is not None:
                self.host.tell(told)
        self.confirmed = state
        if kind is Delivered:
            self.unconfirmed -= 1

    # ---- steps

    def wake(self) -> None:
        """Something happened: do what is owed."""
        while (post := self._advance()) is not None and self.policy is not None:
            self.host.spawn(self._attempt(post, self.policy))
            if self._busy:
                return

    @property
    def _busy(self) -> bool:
        """Strict order makes one attempt at a time, and looks for what is owed when it ends."""
        return bool(self.in_flight) and self.policy is not None and self.policy.order == "strict"

    def view(self) -> View:
        """A view of this memory for the machine."""
        host = self.host
        return View(
            head=self.mailbox.head,
            waiting=self.mailbox.events,
            held=self.held,
            in_flight=self.in_flight,
            read_to=self.read_to,
            seen=self.seen,
            left=self.left,
            counted=self.counted,
            counting=self.counting,
            cutoff=self.cutoff,
            trimmed_at=self.trimmed_at,
            holding=bool(self.bound),
            unconfirmed=self.barrier > host.recorder.confirmed_index,
            burying=self.burying,
            may_start=self.unconfirmed < UNCONFIRMED_MAX and host.may_start(),
            granted=self.granted,
            adopted=self.adopted is self.policy,
            asking=self.asking,
            invalid=self.invalid,
            absent_to=self.absent_to,
            removal=self._removal,
            bucket=self.bucket,
            set_aside=self.set_aside,
            reach=self,
        )

    def _advance(self) -> s.Post | None:
        """Perform step after step until an attempt is to be made, which is returned, or nothing is owed."""
        if not self.loaded or self.host.stopped or self.hold_count:
            return None
        while True:
            now = self.host.clock.now()
            self.lapse_grant(now)
            view = self.view()
            step = next_step(self.state, self.policy, view, now)
            match step:
                case s.Post():
                    self._take_token(now, step.free)
                    if step.accepted:
                        self.record(c.AcceptEvent(step.event), now)
                    self._take_out(step.event)
                    self.in_flight[step.event.position] = step.event
                    self.host.in_flight += 1
                    return step
                case s.Rest() | s.WaitUntil():
                    if not view.unconfirmed:
                        self.end_grant(now, used=False)  # Held up after all.
                    if isinstance(step, s.WaitUntil):
                        self._alarm.set(step.at, now)
                    return None
                case s.Read() | s.Fetch():
                    self._begin_reading(step)
                    return None
                case s.Bury(burials):
                    self.burying = True
                    self.host.spawn(self._bury(burials))
                case s.Count(after):
                    self.counting = True
                    self.host.spawn(self._count(after))
                case s.Ask():
                    self.asking = True
                    self.host.spawn(self._ask())
                case s.Park():
                    self.park()
                case _:
                    self._perform(step, now)

    def _perform(self, step: s.Recorded, now: float) -> None:
        """Record the step, and let memory follow."""
        match step:
            case c.GiveUpEvents():
                self.give_up(step, now)
            case c.DropRepeat(event) | c.RefuseEvent(event):
                self.record(step, now)
                self._take_out(event)
                self._release(event.position, self.host.recorder.index)
            case c.StartAttempt(event):
                self.end_grant(now, used=False)  # Another event's, which waits again.
                self._take_token(now, free=False)
                self._take_out(event)
                self.held[event.position] = event
                self.granted, self.granted_at, self.set_aside = event.position, now, self.set_aside + 1
                self.record(step, now)
            case c.OpenReceiver():
                if self.behind_strangers:
                    self.park()
                else:
                    self.record(step, now)
            case c.Adopt():
                self.end_grant(now, used=False)
                limit = self.state.limit
                self.record(step, now)
                self.adopted = self.policy
                if self.state.limit != limit:
                    self.bucket = self.state.bucket
            case c.UnparkReceiver():
                self.sweep_left()
                self.counted = True
                self.record(step, now)
            case _:
                assert_never(step)

    def give_up(self, command: c.GiveUpEvents, now: float) -> None:
        """These events become dead letters, be they in memory or not."""
        if any(each.position == self.granted for each in command.events):
            self.end_grant(now, used=False)
        self.record(command, now)
        if command.reason == "overflow":
            self.trimmed_at = now
        for each in command.events:
            if self.held.pop(each.position, None) is None:
                self.mailbox.drop_to(each.position)
            self._release(each.position, self.host.recorder.index)

    def give_up_to(self, position: int, reason: str) -> None:
        """Whatever is not settled up to `position` becomes a dead letter."""
        if self.cutoff is None or self.cutoff.to < position:
            self.cutoff = Cutoff(position, reason)
        self.wake()

    # ---- attempts

    async def _attempt(self, post: s.Post | None, policy: Policy | None) -> None:
        """Make an attempt, under the configuration that it was decided by, and whatever follows at once."""
        while post is not None and policy is not None:
            attempt = Attempt(
                receiver=self.receiver, policy=policy, event=post.event, sequence=post.sequence,
                number=post.attempt, may_start=self.host.within_lease,
            )  # fmt: skip
            outcome = await self.send(attempt)
            if self.host.stopped:
                return
            self._ended(post.event, outcome)
            post, policy = self._advance(), self.policy
            if post is not None and not self._busy:
                self.wake()  # The outcome may have made room for more than its successor.

    async def send(self, attempt: Attempt) -> Outcome:
        """Make the attempt. Whatever breaks in there is our defect, and must end the attempt all the same."""
        try:
            return await self.host.sender.send(attempt)
        except Exception as error:
            log.exception("attempt.broken", extra={"receiver": self.receiver, "sequence": attempt.sequence})
            return Failed(error=INTERNAL, detail=type(error).__name__, latency_ms=0.0)

    def _ended(self, event: Event, outcome: Outcome) -> None:
        now = self.touched_at = self.host.clock.now()
        del self.in_flight[event.position]
        self.host.tally.ended(outcome, now - event.stored_at)
        self.host.landed()
        if self._landing is not None:
            self._landing.set_result(None)
            self._landing = None
        if isinstance(outcome, NotSent):
            if open_entry(self.state, event.position) is not None:
                self.held[event.position] = event
            elif event.position > self.state.frontier.position:
                self.mailbox.put_back(event)
            return
        if isinstance(outcome, Answered):
            self.last_answer = outcome.excerpt()
        self.record(c.RecordOutcome(event, outcome), now)
        entry = open_entry(self.state, event.position)
        self.answers.note(event.position, outcome)
        if entry is None:
            self._release(event.position, self.host.recorder.index)
        elif entry.next_at - now <= PARK_AFTER_S:
            self.held[event.position] = event

    async def landing(self) -> None:
        """Return when an attempt is over. Cancelled if the shard stops before."""
        if self._landing is None:
            self._landing = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._landing)

    # ---- reading the backlog

    def _begin_reading(self, step: s.Read | s.Fetch) -> None:
        if not self.busy_reading:
            self.busy_reading = True
            self.host.spawn(self._read(step, self.seen, self.known))

    async def _read(self, step: s.Read | s.Fetch, reach: int, known: Known) -> None:
        """Read up to what was seen until now: of what comes meanwhile, the answer need not tell."""
        found: Event | Batch | None
        try:
            if isinstance(step, s.Fetch):
                found = await self.host.backlog.event(self.receiver, step.position)
            else:
                found = await self.host.backlog.read(self.receiver, step.after, reach, MAILBOX_MAX)
        except Unavailable:
            self.busy_reading = False
            self._ask_again()
            return
        if self.host.stopped:
            return
        self.busy_reading = False
        if isinstance(found, Batch):
            self._take_batch(found, reach, known)
        else:
            self._take_fetched(step, found)
        self.wake()

    async def _count(self, after: int) -> None:
        """Learn how much lies in the stream alone, all told by one replica; only then how far that can be."""
        backlog, before = self.host.backlog, (self.sweeps, self.taken)
        try:
            counted = await backlog.count(self.receiver, after)
            end = await backlog.end()
        except Unavailable:
            self.counting = False
            self._ask_again()
            return
        self.counting = False
        if not self.host.stopped:
            self.take_count(counted, end, before)
            self.wake()

    # ---- burials

    async def _bury(self, burials: tuple[Burial, ...]) -> None:
        positions = [each.position for each in burials]
        answers = answer_texts(self.answers.of(positions), self.policy)
        await self.host.dead_letters.bury(self.receiver, burials, answers)
        self.burying = False
        self.answers.forget(positions)
        if not self.host.stopped:
            self.record(c.MarkBuried(tuple(positions)), self.host.clock.now())
            self.wake()

    # ---- configuration

    def configure(self, policy: Policy | None) -> None:
        """The configuration changed, or is (seemingly) gone."""
        self.policy, self.invalid = policy, False
        if self.loaded:
            self.wake()

    async def _ask(self) -> None:
        """Nothing is known of this receiver, or that it was removed: only the leader's answer decides."""
        host, reach = self.host, self.read_to
        try:
            answer = await host.policies.confirm(self.receiver)
            removed = self.state.opened and (isinstance(answer, Absent) or self._removal > self.state.removal)
            if removed:
                await remove(self)
        except Unavailable:
            self.asking = False
            self._ask_again()
            return
        self.asking = False
        if host.stopped:
            return
        match answer:
            case _ if self.policy is not None:
                pass
            case Policy():
                self.policy = answer
            case Invalid():
                self.invalid = True
            case Absent() if not removed:
                self.absent_to = reach
            case Absent():
                pass
            case _:
                assert_never(answer)
        self.wake()

    @property
    def _removal(self) -> int:
        """The last removal of the configuration that the node knows of."""
        removal = self.host.policies.removal(self.receiver)
        return 0 if removal is None else removal.revision

    def _ask_again(self) -> None:
        if not self.host.stopped:
            now = self.host.clock.now()
            self._alarm.set(now + ASK_AGAIN_S, now)

    async def resume(self) -> None:
        """End disablement, backoff and throttling; returns once that is on record."""
        self.record(c.ResumeReceiver(), self.host.clock.now())
        index = self.host.recorder.index
        self.wake()
        await self.host.confirmed_to(index)

    # ---- leaving memory

    @property
    def resting(self) -> bool:
        """Nothing in memory would be lost: everything is confirmed, and nothing is under way."""
        return (
            self.loaded
            and self.state is self.confirmed
            and not (self.mailbox or self.held or self.bound or self.in_flight or self.pinging)
            and not (self.busy_reading or self.asking or self.burying or self.hold_count)
            and not (self.state.burials or self.state.parked)
            and not self._alarm.is_set
        )

    def close(self) -> None:
        """Stop waiting; the host forgets this shell."""
        self._alarm.cancel()
        if self._landing is not None:
            self._landing.cancel()
