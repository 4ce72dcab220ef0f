"""The memory of one actor: its live state, what waits, what is bound, how far its stream is read.

Nothing here waits or decides. Messages come in, are queued or left to the stream, and go out again: they are
bounded in number and bytes, and each is released under the mark of the fact that its release rests on.
"""

from msgspec import Struct

from actors.machine import commands as c
from actors.machine.bucket import GRANT_S, Bucket, give_back, refill, take
from actors.machine.event import Event
from actors.machine.owed import steps as s
from actors.machine.state import OPEN_MAX, State, open_entry
from actors.ports import Batch
from actors.runtime.backlog_read import sift
from actors.runtime.home import ShardPorts
from actors.runtime.mailbox import Mailbox
from actors.runtime.unacked import Binding

UNCONFIRMED_MAX = 256
"""Settlements that may be on no confirmed record yet."""


class Known(Struct, frozen=True, gc=False):
    """The last event that was left to the stream: it was there for certain. `source`: the highest so far."""

    position: int
    source: int


class Memory:
    """The memory of one actor.

    `left` events lie in the stream alone, behind `read_to` and up to `seen`; there may be more of them unless
    they are `counted`. Those up to `counted_to` were counted before they arrived. `sweeps` tells how often
    all that was known of them was dropped, `taken` how many were read. `granted` is the position whose
    attempt was recorded at `granted_at` and not made yet; `set_aside` counts the tokens of such attempts,
    pings included.
    """

    __slots__ = ("bound", "bucket", "busy_reading", "confirmed", "counted", "counted_to", "granted",
                 "granted_at", "held", "host", "in_flight", "known", "left", "mailbox", "parked_mark",
                 "read_to", "receiver", "seen", "set_aside", "state", "sweeps", "taken")  # fmt: skip

    def __init__(self, receiver: str, host: ShardPorts) -> None:
        self.receiver = receiver
        self.host = host
        self.state = self.confirmed = State(receiver=receiver)
        self.mailbox = Mailbox()
        self.bound: dict[int, Binding] = {}
        self.held: dict[int, Event] = {}
        self.in_flight: dict[int, Event] = {}
        self.bucket: Bucket | None = None
        self.granted = 0
        self.granted_at = 0.0
        self.set_aside = 0
        self.read_to = self.seen = 0
        self.known = Known(0, 0)
        self.left = 0
        self.counted = True
        self.counted_to = self.sweeps = self.taken = 0
        self.parked_mark = 0
        self.busy_reading = False

    def record(self, command: c.Command, now: float) -> None:
        """Decide, and take what was decided as done; the journal will confirm it."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The epoch of the shard's present owner."""
        return self.host.epoch

    @property
    def released_to(self) -> int:
        """No event up to there is a new receiver's."""
        return self.host.released_to

    @property
    def taken_to(self) -> int:
        """No event beyond this position can have been posted, by whichever owner."""
        host = self.host
        return max(host.claim_position, host.bindings.received, self.read_to, self.seen)

    @property
    def posted_to(self) -> int:
        """The last position that an owner that vanished may have posted without a record; 0 if none."""
        unclean = self.host.unclean
        first_bound = min(self.bound, default=0)
        return unclean.position if unclean and self.host.may_have_posted(self.state, first_bound) else 0

    @property
    def unrecorded(self) -> int:
        """Counts the numbers beyond the frontier that an owner that vanished may have given."""
        return max(0, min(self.posted_to - self.state.frontier.position, UNCONFIRMED_MAX + OPEN_MAX))

    def bucket_at(self, now: float) -> Bucket | None:
        """The bucket, filled up to now; None where there is no limit."""
        if self.bucket is None or self.state.limit is None:
            return None
        self.bucket = refill(self.bucket, self.state.limit, now, self.host.epoch, self.set_aside)
        return self.bucket

    def _take_token(self, now: float, free: bool) -> None:
        if free:
            self.end_grant(now, used=True)
        elif (bucket := self.bucket_at(now)) is not None:
            # None would be no limit at all.
            self.bucket = take(bucket) or Bucket(0.0, bucket.at, bucket.epoch)

    def end_grant(self, now: float, *, used: bool) -> None:
        """The recorded attempt starts now, or gives its token back."""
        if self.granted:
            self.granted = 0
            self.start_or_give_back(now, used=used)

    def lapse_grant(self, now: float) -> None:
        """An attempt whose record took too long needs another one, and a token of then."""
        if self.granted and now > self.granted_at + GRANT_S:
            self.end_grant(now, used=False)

    def start_or_give_back(self, now: float, *, used: bool) -> None:
        """One token less is set aside."""
        bucket = self.bucket_at(now)
        self.set_aside -= 1
        if bucket is not None and not used:
            self.bucket = give_back(bucket)

    # ---- messages

    def _take(self, event: Event) -> None:
        """Queue it, or recognise it, or leave it to the stream."""
        position, parked = event.position, self.state.parked
        all_read = self.read_to >= self.seen and not self.busy_reading
        if position <= self.state.frontier.position:
            self._take_numbered(event)
        elif self.behind_strangers:
            self.park()
            self.left += 1
        elif position <= self.read_to:
            self._take_known(position)
        elif self.mailbox.fits(event) and (all_read or not parked):
            self.mailbox.append(event)
            self.read_to = position
        elif parked:
            self.left += position > max(self.seen, self.counted_to)
            self._leave(position, event.source)
        else:
            self.park()
            self.left += 1

    def _take_numbered(self, event: Event) -> None:
        position = event.position
        if open_entry(self.state, position) is None:
            self._release(position, self.host.recorder.index)
        elif not self.has(position):
            if self.state.parked:
                self._leave(position, event.source)
            else:
                self.held[position] = event

    def _take_known(self, position: int) -> None:
        """It waits in memory, and stays bound; or it was a repeat, and all before it is numbered on record.

        See `docs/decisions/repeats-before-what-is-open.md`.
        """
        if not self.has(position):
            self._release(position, self.host.recorder.index)

    @property
    def behind_strangers(self) -> bool:
        """Tells whether events may lie in the stream that came when nobody knew of this receiver."""
        state = self.state
        return not (state.opened or state.parked) and state.frontier.position < self.host.unjudged_to

    def _take_found(self, position: int, source: int) -> None:
        """It lies in the stream, and was given to nobody, or to this actor before."""
        state = self.state
        if self.has(position):
            return
        known = position <= max(state.frontier.position, self.read_to)
        if known and open_entry(state, position) is None:
            self._release(position, self.host.recorder.index)
            return
        # What was seen was counted when it came, or is to be.
        uncounted = position > max(self.read_to, self.seen, self.counted_to)
        if not state.parked:
            self.park()
        self.left += uncounted
        self._leave(position, source)

    def has(self, position: int) -> bool:
        """Tells whether its event is in memory."""
        return position in self.in_flight or position in self.held or self.mailbox.holds(position)

    def _leave(self, position: int, source: int) -> None:
        """It lies in the stream, and its turn comes when it is read from there."""
        self.seen = max(self.seen, position)
        self.known = Known(max(self.known.position, position), max(self.known.source, source))
        self._release(position, self.parked_mark)

    def _release(self, position: int, mark: int) -> None:
        binding = self.bound.pop(position, None)
        if binding is not None:
            self.host.bindings.release(binding, mark)

    def _take_out(self, event: Event) -> None:
        if self.held.pop(event.position, None) is None:
            self.mailbox.pop()

    # ---- what lies in the stream alone

    def park(self) -> None:
        """Drop the waiting events from memory, on record; they lie in the stream."""
        now, unjudged_to = self.host.clock.now(), self.host.unjudged_to if self.behind_strangers else 0
        waiting = [each.stored_at for each in self.state.open]
        waiting += [each.stored_at for each in (*self.in_flight.values(), self.mailbox.head) if each]
        parked = self.state.parked
        self.record(c.ParkReceiver(min(waiting, default=None), self.host.released_to), now)
        if not parked:
            self.parked_mark = self.host.recorder.index
        events = (*self.mailbox.events, *self.held.values(), *self.in_flight.values())
        sources = {each.position: each.source for each in events}
        for position in list(self.bound):
            self._leave(position, sources.get(position, 0))
        frontier = self.state.frontier.position
        if unjudged_to:
            self.read_to, self.seen, self.counted = frontier, max(self.seen, unjudged_to), False
        else:
            head = self.mailbox.head
            self.read_to = max(frontier, head.position - 1 if head else self.read_to)
        self.left += len(self.mailbox.clear())
        self.held.clear()

    def _take_fetched(self, step: s.Step, event: Event | None) -> None:
        position = step.position if isinstance(step, s.Fetch) else 0
        if self.has(position) or open_entry(self.state, position) is None:
            return
        if event is not None:
            self.held[position] = event
        else:
            self.record(c.MissEvents(position, position), self.host.clock.now())
            self._release(position, self.host.recorder.index)

    def _take_batch(self, batch: Batch, reach: int, known: Known) -> None:
        """Queue what was found, up to an event that was there and is gone: that is recorded first."""
        found = sift(batch, reach=reach, read_to=self.read_to, known=known.position)
        for event in found.events:
            self.mailbox.append(event)
        self.read_to = found.read_to
        self.left = max(0, self.left - len(found.events))
        self.taken += len(found.events)
        if found.gone and not self.mailbox:
            first, last = found.gone
            missing = c.MissEvents(first, last, posted=self.unrecorded, source=known.source)
            self.record(missing, self.host.clock.now())
            self.read_to = last
        if self.read_to >= self.seen:
            self.sweep_left()
            self.counted = True

    def sweep_left(self) -> None:
        """Nothing lies in the stream alone, as far as is known."""
        self.left = self.counted_to = 0
        self.sweeps += 1

    def take_count(self, counted: int, end: int, before: tuple[int, int]) -> None:
        """So many lay in the stream, up to its `end` at most; `before` were `sweeps` and `taken` then.

        Rather too little is given up than too much: what was read meanwhile is no more there, and what
        arrives up to the end may have been counted.
        """
        sweeps, taken = before
        if self.sweeps == sweeps:
            self.left = max(self.left, counted - (self.taken - taken))
            self.counted, self.counted_to = True, end

    def discard(self, command: c.RemoveReceiver | c.ForgetBacklog) -> None:
        """Nothing of what lies up to the command's position is wanted any more."""
        now = self.host.clock.now()
        self.record(command, now)
        position = command.position
        for bound in [each for each in self.bound if each <= position]:
            self._release(bound, self.host.recorder.index)
        self.mailbox.drop_to(position)
        self.held.clear()
        self.read_to = max(self.read_to, position)
        if self.seen > position:
            self.counted = False
            self.record(c.ParkReceiver(now), now)
            self.parked_mark = self.host.recorder.index
        self.sweep_left()
        self.seen = max(self.seen, position)
