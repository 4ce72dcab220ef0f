"""The shell of one actor: it holds what is in memory, asks the machine for its next step, and performs it.

No decision is taken here and none is split by an await: `_advance` runs synchronously from step to step until
an attempt is to be made or nothing is owed. An attempt's own task goes on with the attempt that follows, so a
busy receiver costs one task, and a resting one costs none.
"""

import asyncio
from typing import assert_never

from actors import commands as c
from actors.bindings import Binding
from actors.bucket import Bucket, inherit, refill, take
from actors.event import Event
from actors.facts import Burial, Delivered, Fact
from actors.home import Home
from actors.outcome import Answered, NotSent, Outcome
from actors.policy import Policy
from actors.ports import Absent, Attempt, Batch, Invalid, Unavailable
from actors.reading import sift
from actors.receiver import PARK_AFTER_S, UNHURRIED, decide, evolve, next_step
from actors.state import State, open_entry
from actors.waiting import MAILBOX_MAX, Mailbox

UNCONFIRMED_MAX = 256
ASK_AGAIN_S = 0.5


class Shell:
    """One receiver in memory. `state` is live; `confirmed` is what the confirmed journal says."""

    def __init__(self, receiver: str, host: Home) -> None:
        self.receiver = receiver
        self.host = host
        self.state = self.confirmed = State(receiver=receiver)
        self.loaded = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.policy: Policy | None = None
        self.adopted: Policy | None = None
        self.mailbox = Mailbox()
        self.bound: dict[int, Binding] = {}
        self.held: dict[int, Event] = {}
        self.in_flight: dict[int, Event] = {}
        self.bucket: Bucket | None = None
        self.granted = 0
        self.read_to = self.seen = self.known = 0
        self.parked_mark = 0
        self.barrier = 0
        self.unconfirmed = 0
        self.busy_reading = False
        self.burying = False
        self.pinging = 0
        self.asking = False
        self.invalid = False
        self.absent_to = 0
        self.last_answer: Answered | None = None
        self.touched_at = host.clock.now()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    # ---- coming into memory

    def begin(self, state: State, policy: Policy | None) -> None:
        """The state is known: go on from where it says."""
        host = self.host
        self.state = self.confirmed = state
        self.loaded = True
        self.policy = policy
        self.read_to = state.frontier.position
        self.seen = max(host.bindings.received, self.read_to) if state.parked else self.read_to
        if state.limit and state.bucket:
            self.bucket = inherit(
                state.bucket, state.limit, epoch=host.epoch, claimed_at=host.claimed_at, unclean=host.unclean,
                unsettled=host.may_have_posted(state, min(self.bound, default=0)),
            )  # fmt: skip
        early = self.mailbox.clear()
        overflowed = len(early) < len(self.bound)
        for event in early:
            self._take(event)
        if overflowed:
            self.park()
        if not self.ready.done():
            self.ready.set_result(None)
        self.poke()

    # ---- messages

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
            self.poke()
        elif self.mailbox.fits(event):
            self.mailbox.append(event)

    def _take(self, event: Event) -> None:
        """Queue it, or recognise it, or leave it to the stream."""
        position, parked = event.position, self.state.parked
        all_read = self.read_to >= self.seen and not self.busy_reading
        if position <= self.state.frontier.position:
            self._take_numbered(event)
        elif position <= self.read_to:
            self._take_known(position)
        elif self.mailbox.fits(event) and (all_read or not parked):
            self.mailbox.append(event)
            self.read_to = position
        elif parked:
            self._leave(position)
        else:
            self.park()

    def _take_numbered(self, event: Event) -> None:
        position = event.position
        if open_entry(self.state, position) is None:
            self._release(position, self.host.recorder.index)
        elif not self._has(position):
            if self.state.parked:
                self._leave(position)
            else:
                self.held[position] = event

    def _take_known(self, position: int) -> None:
        """It waits in memory, and stays bound; or it was a repeat: all before it is settled, and so is it."""
        if not self._has(position):
            self._release(position, self.host.recorder.index)

    def _has(self, position: int) -> bool:
        return position in self.in_flight or position in self.held or self.mailbox.holds(position)

    def _leave(self, position: int) -> None:
        """It lies in the stream, and its turn comes when it is read from there."""
        self.seen = max(self.seen, position)
        self.known = max(self.known, position)
        self._release(position, self.parked_mark)

    def _release(self, position: int, mark: int) -> None:
        binding = self.bound.pop(position, None)
        if binding is not None:
            self.host.bindings.release(binding, mark)

    # ---- facts

    def record(self, command: c.Command) -> None:
        """Decide, and take what was decided as done; the journal will confirm it."""
        for fact in decide(self.state, self.policy, command):
            self._record(fact)

    def _record(self, fact: Fact) -> None:
        self.state = evolve(self.state, fact)
        hurried = not isinstance(fact, UNHURRIED)
        index = self.host.recorder.add(fact, self.state, hurried)
        if hurried:
            self.barrier = index
        elif type(fact) is Delivered:
            self.unconfirmed += 1

    def confirm(self, fact: Fact, state: State) -> None:
        """The journal holds `fact`; the host pokes afterwards."""
        self.confirmed = state
        if type(fact) is Delivered:
            self.unconfirmed -= 1

    # ---- steps

    def poke(self) -> None:
        """Something happened: do what is owed."""
        while (post := self._advance()) is not None and self.policy is not None:
            self.host.spawn(self._attempt(post, self.policy))

    def view(self) -> c.View:
        """What the machine may know of this memory."""
        host = self.host
        return c.View(
            head=self.mailbox.head,
            held=self.held,
            in_flight=self.in_flight,
            read_to=self.read_to,
            seen=self.seen,
            holding=bool(self.bound),
            unconfirmed=self.barrier > host.recorder.confirmed_index,
            burying=self.burying,
            may_start=self.unconfirmed < UNCONFIRMED_MAX and host.may_start(),
            granted=self.granted,
            adopted=self.adopted is self.policy,
            asking=self.asking or self.invalid,
            absent_to=self.absent_to,
            bucket=self.bucket,
        )

    def _advance(self) -> c.Post | None:
        """Perform step after step until an attempt is to be made, which is returned, or nothing is owed."""
        if not self.loaded or self.host.stopped:
            return None
        while True:
            now, view = self.host.clock.now(), self.view()
            step = next_step(self.state, self.policy, view, now)
            match step:
                case c.Post():
                    self._take_token(now, step.free)
                    if step.accepted:
                        self.record(c.AcceptEvent(step.event))
                    self._take_out(step.event)
                    self.in_flight[step.event.position], self.granted = step.event, 0
                    return step
                case c.Rest() | c.WaitUntil():
                    if not view.unconfirmed:
                        self.granted = 0  # Held up after all: the token was for a start at once.
                    if isinstance(step, c.WaitUntil):
                        self._wake_at(step.at, now)
                    return None
                case c.Read() | c.Fetch():
                    self._begin_reading(step)
                    return None
                case c.Bury(burial):
                    self.burying = True
                    self.host.spawn(self._bury(burial))
                case c.Ask():
                    self.asking = True
                    self.host.spawn(self._ask())
                case c.Park():
                    self.park()
                case _:
                    self._decide_step(step, now)

    def _decide_step(self, step: c.Decision, now: float) -> None:
        match step:
            case c.GiveUp(event, reason):
                self._let_go(event, c.GiveUpEvent(event, reason, now, self.bucket_at(now)))
            case c.Ignore(event):
                self._let_go(event, c.DropRepeat(event))
            case c.Refuse(event, reason):
                self._let_go(event, c.RefuseEvent(event.position, reason, now))
            case c.Record(event):
                self._take_token(now, free=False)
                self._take_out(event)
                self.held[event.position], self.granted = event, event.position
                self.record(c.StartAttempt(event, now, self.bucket))
            case c.Begin():
                window = self.policy.dedup_window if self.policy else 0
                self.record(c.OpenReceiver(now, self.state.frontier.position, window))
            case c.Reconfigure():
                limit = self.state.limit
                self.record(c.Adopt(now, self._taken_to, self.host.epoch, self.bucket_at(now)))
                self.adopted = self.policy
                if self.state.limit != limit:
                    self.bucket = self.state.bucket
            case c.Unpark():
                self.record(c.UnparkReceiver(now))
            case _:
                assert_never(step)

    def _let_go(self, event: Event, command: c.GiveUpEvent | c.DropRepeat | c.RefuseEvent) -> None:
        """The event gets no attempt."""
        self.record(command)
        self._take_out(event)
        self._release(event.position, self.host.recorder.index)

    def _take_out(self, event: Event) -> None:
        if self.held.pop(event.position, None) is None:
            self.mailbox.pop()

    @property
    def _taken_to(self) -> int:
        """No event beyond this position can have been posted, by whichever owner."""
        host = self.host
        return max(host.claim_position, host.bindings.received, self.read_to, self.seen)

    # ---- attempts

    async def _attempt(self, post: c.Post | None, policy: Policy | None) -> None:
        """Make an attempt, under the configuration that it was decided by, and whatever follows at once."""
        while post is not None and policy is not None:
            outcome = await self.host.sender.send(Attempt(
                receiver=self.receiver, policy=policy, event=post.event, sequence=post.sequence,
                number=post.attempt, may_start=self.host.within_lease,
            ))  # fmt: skip
            if self.host.stopped:
                return
            self._ended(post.event, outcome)
            post, policy = self._advance(), self.policy

    def _ended(self, event: Event, outcome: Outcome) -> None:
        now = self.touched_at = self.host.clock.now()
        del self.in_flight[event.position]
        self.host.landed()
        if isinstance(outcome, NotSent):
            if open_entry(self.state, event.position) is None:
                self.mailbox.put_back(event)
            else:
                self.held[event.position] = event
            return
        if isinstance(outcome, Answered):
            self.last_answer = outcome
        self.record(c.RecordOutcome(event, outcome, now, self.bucket_at(now)))
        entry = open_entry(self.state, event.position)
        if entry is None:
            self._release(event.position, self.host.recorder.index)
        elif entry.next_at - now <= PARK_AFTER_S:
            self.held[event.position] = event

    def bucket_at(self, now: float) -> Bucket | None:
        """The bucket, filled up to now; None where there is no limit."""
        if self.bucket is None or self.state.limit is None:
            return None
        self.bucket = refill(self.bucket, self.state.limit, now, self.host.epoch)
        return self.bucket

    def _take_token(self, now: float, free: bool) -> None:
        if not free and (bucket := self.bucket_at(now)) is not None:
            self.bucket = take(bucket)

    # ---- waiting

    def _wake_at(self, at: float, now: float) -> None:
        if self._timer is not None:
            if self._timer_at == at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self.poke()

    def park(self) -> None:
        """Drop the waiting events from memory, on record; they lie in the stream."""
        now = self.host.clock.now()
        waiting = [each.stored_at for each in self.state.open]
        waiting += [each.stored_at for each in (*self.in_flight.values(), self.mailbox.head) if each]
        parked = self.state.parked
        self.record(c.ParkReceiver(now, min(waiting, default=None)))
        if not parked:
            self.parked_mark = self.host.recorder.index
        for position in list(self.bound):
            self._leave(position)
        self.mailbox.clear()
        self.held.clear()
        self.read_to = max(self.state.frontier.position, *self.in_flight, 0)

    # ---- reading the backlog

    def _begin_reading(self, step: c.Read | c.Fetch) -> None:
        if not self.busy_reading:
            self.busy_reading = True
            self.host.spawn(self._read(step, self.seen, self.known))

    async def _read(self, step: c.Read | c.Fetch, reach: int, known: int) -> None:
        """Read up to what was seen until now: of what comes meanwhile, the answer need not tell."""
        found: Event | Batch | None
        try:
            if isinstance(step, c.Fetch):
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
        self.poke()

    def _take_fetched(self, step: c.Step, event: Event | None) -> None:
        position = step.position if isinstance(step, c.Fetch) else 0
        if self._has(position) or open_entry(self.state, position) is None:
            return
        if event is not None:
            self.held[position] = event
        else:
            now = self.host.clock.now()
            self.record(c.MissEvents(position, position, now, self.bucket_at(now)))
            self._release(position, self.host.recorder.index)

    def _take_batch(self, batch: Batch, reach: int, known: int) -> None:
        """Queue what was found, up to an event that was there and is gone: that is recorded first."""
        found = sift(batch, reach=reach, read_to=self.read_to, known=known)
        for event in found.events:
            self.mailbox.append(event)
        self.read_to = found.read_to
        if found.gone and not self.mailbox:
            first, last = found.gone
            now = self.host.clock.now()
            self.record(c.MissEvents(first, last, now, self.bucket_at(now)))
            self.read_to = last

    # ---- burials

    async def _bury(self, burial: Burial) -> None:
        await self.host.graveyard.bury(self.receiver, burial)
        self.burying = False
        if not self.host.stopped:
            self.record(c.MarkBuried(burial.position))
            self.poke()

    # ---- configuration

    def configure(self, policy: Policy | None) -> None:
        """The configuration changed, or is (seemingly) gone."""
        self.policy, self.invalid = policy, False
        if self.loaded:
            self.poke()

    async def _ask(self) -> None:
        """Nothing is known of this receiver: only the leader's answer decides."""
        host, reach, taken_to = self.host, self.read_to, self._taken_to
        waiting = 0
        try:
            answer = await host.policies.confirm(self.receiver)
            if isinstance(answer, Absent) and self.state.opened:
                waiting = await host.backlog.count(self.receiver, self.state.frontier.position)
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
            case Absent() if self.state.opened:
                self._remove(taken_to, waiting)
            case Absent():
                self.absent_to = reach
            case _:
                assert_never(answer)
        self.poke()

    def _ask_again(self) -> None:
        if not self.host.stopped:
            now = self.host.clock.now()
            self._wake_at(now + ASK_AGAIN_S, now)

    def _remove(self, position: int, waiting: int) -> None:
        """Discard what waits up to `position`, on record. What came since waits for the next answer."""
        now = self.host.clock.now()
        self.record(c.RemoveReceiver(now, position, waiting, self.bucket_at(now)))
        for bound in [each for each in self.bound if each <= position]:
            self._release(bound, self.host.recorder.index)
        self.mailbox.drop_to(position)
        self.held.clear()
        self.read_to = max(self.read_to, position)
        self.seen = max(self.seen, position)

    async def resume(self) -> None:
        """End disablement, backoff and throttling; returns once that is on record."""
        self.record(c.ResumeReceiver(self.host.clock.now()))
        index = self.host.recorder.index
        self.poke()
        await self.host.confirmed_to(index)

    # ---- leaving memory

    @property
    def resting(self) -> bool:
        """Nothing in memory would be lost: everything is confirmed, and nothing is under way."""
        return (
            self.loaded
            and self.state is self.confirmed
            and not (self.mailbox or self.held or self.bound or self.in_flight or self.pinging)
            and not (self.busy_reading or self.asking or self.burying)
            and not (self.state.burials or self.state.parked)
            and self._timer is None
        )

    def close(self) -> None:
        """Stop waiting; the host forgets this shell."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
