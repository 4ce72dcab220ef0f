"""What one actor holds in memory: its live state, what waits, what is bound, how far its stream is read.

Nothing here waits or decides. Messages come in, are queued or left to the stream, and go out again: they are
bounded in number and bytes, and each is released under the mark of the fact that its release rests on.
"""

from actors import commands as c
from actors.bindings import Binding
from actors.bucket import Bucket, refill
from actors.event import Event
from actors.home import Home
from actors.ports import Batch
from actors.reading import sift
from actors.state import State, open_entry
from actors.waiting import Mailbox


class Memory:
    """The memory of one actor.

    `left` events lie in the stream alone, behind `read_to` and up to `seen`; there may be more of them unless
    they are `counted`.
    """

    __slots__ = ("bound", "bucket", "busy_reading", "confirmed", "counted", "held", "host", "in_flight",
                 "known", "left", "mailbox", "parked_mark", "read_to", "receiver", "seen",
                 "state")  # fmt: skip

    def __init__(self, receiver: str, host: Home) -> None:
        self.receiver = receiver
        self.host = host
        self.state = self.confirmed = State(receiver=receiver)
        self.mailbox = Mailbox()
        self.bound: dict[int, Binding] = {}
        self.held: dict[int, Event] = {}
        self.in_flight: dict[int, Event] = {}
        self.bucket: Bucket | None = None
        self.read_to = self.seen = self.known = 0
        self.left = 0
        self.counted = True
        self.parked_mark = 0
        self.busy_reading = False

    def record(self, command: c.Command) -> None:
        """Decide, and take what was decided as done; the journal will confirm it."""
        raise NotImplementedError

    @property
    def _taken_to(self) -> int:
        """No event beyond this position can have been posted, by whichever owner."""
        host = self.host
        return max(host.claim_position, host.bindings.received, self.read_to, self.seen)

    def bucket_at(self, now: float) -> Bucket | None:
        """The bucket, filled up to now; None where there is no limit."""
        if self.bucket is None or self.state.limit is None:
            return None
        self.bucket = refill(self.bucket, self.state.limit, now, self.host.epoch)
        return self.bucket

    # ---- messages

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
            self.left += position > self.seen
            self._leave(position)
        else:
            self.park()
            self.left += 1

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
        """It waits in memory, and stays bound; or it was a repeat, and all before it is numbered on record.

        See `docs/decisions/repeats-before-what-is-open.md`.
        """
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

    def _take_out(self, event: Event) -> None:
        if self.held.pop(event.position, None) is None:
            self.mailbox.pop()

    # ---- what lies in the stream alone

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
        if self.mailbox.head:
            self.read_to = max(self.state.frontier.position, self.mailbox.head.position - 1)
        self.left += len(self.mailbox.clear())
        self.held.clear()

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
        self.left = max(0, self.left - len(found.events))
        if found.gone and not self.mailbox:
            first, last = found.gone
            now = self.host.clock.now()
            self.record(c.MissEvents(first, last, now, self.bucket_at(now)))
            self.read_to = last
        if self.read_to >= self.seen:
            self.left, self.counted = 0, True

    def discard(self, command: c.RemoveReceiver | c.ForgetBacklog) -> None:
        """Nothing of what lies up to the command's position is wanted any more."""
        self.record(command)
        position = command.position
        for bound in [each for each in self.bound if each <= position]:
            self._release(bound, self.host.recorder.index)
        self.mailbox.drop_to(position)
        self.held.clear()
        self.read_to = max(self.read_to, position)
        if self.seen > position:
            self.counted = False
            self.record(c.ParkReceiver(command.at, command.at))
        self.left, self.seen = 0, max(self.seen, position)
