"""The events of one receiver that arrived and are not settled: in memory, or only in the stream.

Messages come in, are queued or left in the stream, and go out again. They are bounded in number and bytes,
and each is released with the index of the fact on which its release rests. Parking is recorded here;
everything else that happens here follows what was recorded.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from actors.configuration.policy import BatchLimits
from actors.machine import commands as c
from actors.machine.event import Event
from actors.machine.scheduling.next_step import PARK_AFTER_S
from actors.machine.state import State, is_settled, open_entry
from actors.memory.cursor import Cursor, LastStored
from actors.memory.mailbox import MAILBOX_MAX, Mailbox
from actors.memory.unacked import ReceiverUnacked
from actors.ports import BacklogPage
from actors.runtime.live_state import LiveState
from actors.runtime.posting_bounds import PostingBounds

READ_EVENTS_MAX = 256
"""Number of events that one read of the stream returns for a receiver with batches."""


class Pending:
    """The events of one receiver that are not settled.

    - `mailbox`: events in memory that have no number yet.
    - `open_in_memory`: open events in memory, by position.
    - `in_flight`: events that are being sent, by position, in `posts_in_flight` POSTs.
    - `cursor`: how far the stream is read, and what is left in it.
    - `unacked`: messages that are handed out and not released.
    - `posting`: how far the events may have been posted.
    """

    __slots__ = ("cursor", "in_flight", "live", "mailbox", "open_in_memory", "posting", "posts_in_flight",
                 "unacked")  # fmt: skip

    def __init__(self, live: LiveState) -> None:
        self.live = live
        self.mailbox = Mailbox()
        self.open_in_memory: dict[int, Event] = {}
        self.in_flight: dict[int, Event] = {}
        self.posts_in_flight = 0
        self.cursor = Cursor()
        self.unacked = ReceiverUnacked(live.receiver, live.environment.shard_unacked)
        self.posting = PostingBounds(live.environment, live, self.cursor, self.unacked, self.in_flight)

    def restore(self, state: State) -> None:
        """Take the events that came before the state was known, and leave the others in the stream."""
        frontier, cursor, unacked = state.frontier.position, self.cursor, self.unacked.messages
        seen = self.live.environment.shard_unacked.received if state.parked else 0
        cursor.restore(frontier, seen, is_counted=not state.parked)
        early = self.mailbox.clear()
        unread = min(unacked.keys() - {each.position for each in early}, default=None)
        late = [] if unread is None else sorted(position for position in unacked if position >= unread)
        for event in early:
            if unread is None or event.position < unread:
                self.queue_or_leave(event)
        for position in [each for each in late if is_settled(state, each)]:
            late.remove(position)
            self.settle(position)
        for position in late:
            cursor.leave(position, 0)
        if late:
            self.park()

    # ---- what comes

    def queue_or_leave(self, event: Event) -> None:
        """Queue the event, or leave it in the stream; it may already be known, or be a duplicate."""
        position, state, cursor = event.position, self.live.state, self.cursor
        if position <= state.frontier.position:
            self._arrive_numbered(event)
        elif not state.opened and self.is_behind_unknown:
            self._leave(position, event.source)
        elif position <= cursor.read_to:
            # It waits in memory, and stays unacked; or it was a duplicate, and facts number all before it:
            # see docs/decisions/duplicates-while-events-are-open.md.
            if not self.has(position):
                self.settle(position)
        elif self.mailbox.fits(event) and (not state.parked or cursor.is_read_up):
            self.mailbox.append(event)
            cursor.note_read(position)
        else:
            self._leave(position, event.source)

    def _arrive_numbered(self, event: Event) -> None:
        position, state = event.position, self.live.state
        if open_entry(state, position) is None:
            self.settle(position)
        elif not self.has(position):
            if state.parked:
                self.cursor.note_stored(position, event.source)
                self.unacked.release(position, self.cursor.parked_index)
            else:
                self.open_in_memory[position] = event

    def expect_batches(self, limits: BatchLimits | None) -> None:
        """Have room for two batches: one may be collected while another one is being sent."""
        self.mailbox.hold_batches(limits)
        self.unacked.set_batched_max(1 if limits is None else 2 * limits.max_events)

    def shape_again(self) -> None:
        """Forget which events could not be shaped: the next attempt finds it out by the transform of then."""
        self.mailbox.shape_again()
        for position, event in self.open_in_memory.items():
            if event.unshapeable:
                self.open_in_memory[position] = replace(event, unshapeable=False)

    @property
    def page_events(self) -> int:
        """Number of events that are read from the stream at once: as many full batches as fit in one read."""
        batch = self.live.policy.batch if self.live.policy else None
        return MAILBOX_MAX if batch is None else READ_EVENTS_MAX // batch.max_events * batch.max_events

    @property
    def is_behind_unknown(self) -> bool:
        """True if the stream may contain events that came when the receiver was unknown."""
        state = self.live.state
        return (
            not (state.opened or state.parked)
            and state.frontier.position < self.live.environment.undecided_to
        )

    def note_in_stream(self, position: int, source: int) -> None:
        """Take an event in the stream that no actor was given, or that this one was given before."""
        state = self.live.state
        if self.has(position):
            return
        known = position <= max(state.frontier.position, self.cursor.read_to)
        if known and open_entry(state, position) is None:
            self.settle(position)
        else:
            self._leave(position, source)

    def has(self, position: int) -> bool:
        """True if the event at that position is in memory."""
        return position in self.in_flight or position in self.open_in_memory or self.mailbox.holds(position)

    def _leave(self, position: int, source: int) -> None:
        """Leave the event in the stream, from which it is read when its turn comes."""
        self.cursor.leave(position, source)
        if self.live.state.parked:
            self.unacked.release(position, self.cursor.parked_index)
        else:
            self.park()

    @property
    def waiting_bounds(self) -> tuple[int, int]:
        """The least and the largest number of events that may be waiting."""
        state, cursor = self.live.state, self.cursor
        unnumbered = sum(position > state.frontier.position for position in self.in_flight)
        held = len(self.mailbox) + len(state.open) + unnumbered
        left_max = cursor.left_min
        if state.parked and not cursor.is_counted:
            # After a takeover, some that were stored before may not have come again yet.
            left_max = max(cursor.seen_to, self.live.environment.claim_position) - cursor.read_to
        return held + cursor.left_min, held + max(left_max, cursor.left_min)

    @property
    def oldest_at(self) -> float | None:
        """When the oldest waiting event was stored; None if none waits, or if that is not known."""
        held = [each.stored_at for each in self.live.state.open]
        held += [each.stored_at for each in self.in_flight.values()]
        held += [each.stored_at for each in self.mailbox.events[:1]]
        if not held and self.live.state.parked and self.cursor.has_unread:
            return self.live.state.waiting_since
        return min(held, default=None)

    # ---- what goes

    def settle(self, position: int) -> None:
        """Release the message, since the facts recorded so far settle the event."""
        self.unacked.release(position, self.live.environment.recorder.index)

    def take_out(self, event: Event) -> None:
        """Take the event out of memory, since it no longer waits."""
        if event.position in self.open_in_memory:
            del self.open_in_memory[event.position]
        else:
            self.mailbox.pop()

    def send(self, events: Sequence[Event]) -> None:
        """Take the events of one POST out of memory, since they are being sent."""
        self.posts_in_flight += 1
        match events:
            case [event]:
                self.take_out(event)
            case _:
                self.take_together(events)
        for event in events:
            self.in_flight[event.position] = event

    def take_together(self, events: Sequence[Event]) -> None:
        """Take the events out of memory, since they no longer wait. Duplicates among them stay."""
        if waiting := [each for each in events if self.open_in_memory.pop(each.position, None) is None]:
            self.mailbox.take(waiting)

    def sent(self, events: Sequence[Event], now: float) -> None:
        """Settle the events of a POST that is over, or hold those that are tried again soon."""
        self.posts_in_flight -= 1
        state = self.live.state
        entries = {each.position: each for each in state.open} if state.open else None
        for event in events:
            del self.in_flight[event.position]
            if entries is None or (entry := entries.get(event.position)) is None:
                self.settle(event.position)
            elif entry.next_at - now <= PARK_AFTER_S:
                self.open_in_memory[event.position] = event

    def not_sent(self, events: Sequence[Event], unshapeable: Sequence[int] = ()) -> None:
        """Hold the events of a POST that was not made: they wait as before, or to be given up."""
        self.posts_in_flight -= 1
        waiting, state = list[Event](), self.live.state
        for event in events:
            del self.in_flight[event.position]
            if event.position in unshapeable:
                event = replace(event, unshapeable=True)
            if open_entry(state, event.position) is not None:
                self.open_in_memory[event.position] = event
            elif event.position > state.frontier.position:
                waiting.append(event)
        if waiting:
            self.mailbox.put_back(waiting)

    def give_up(self, position: int) -> None:
        """Drop the event, which became a dead letter, whether it is in memory or not."""
        if self.open_in_memory.pop(position, None) is None:
            self.mailbox.drop_to(position)
        self.settle(position)

    def discard(self, command: c.RemoveReceiver | c.ForgetBacklog) -> None:
        """Record the command, and drop all events up to its position."""
        live, position = self.live, command.position
        now = live.environment.clock.now()
        live.record(command, now)
        for unsettled in [each for each in self.unacked.messages if each <= position]:
            self.settle(unsettled)
        self.mailbox.drop_to(position)
        self.open_in_memory.clear()
        self.cursor.discard(position)
        if self.cursor.has_seen_beyond(position):
            live.record(c.ParkReceiver(now), now)
            self.cursor.parked_index = live.environment.recorder.index

    # ---- what is only in the stream

    def park(self) -> None:
        """Drop the waiting events from memory, and record that; they stay in the stream."""
        live, cursor, mailbox = self.live, self.cursor, self.mailbox
        environment, parked = live.environment, live.state.parked
        undecided_to = environment.undecided_to if self.is_behind_unknown else 0
        waiting = [each.stored_at for each in live.state.open]
        waiting += [each.stored_at for each in (*self.in_flight.values(), *mailbox.events[:1])]
        live.record(
            c.ParkReceiver(min(waiting, default=None), environment.released_to), environment.clock.now()
        )
        if not parked:
            cursor.parked_index = environment.recorder.index
        events = (*mailbox.events, *self.open_in_memory.values(), *self.in_flight.values())
        sources = {each.position: each.source for each in events}
        for position in self.unacked.messages:
            cursor.note_stored(position, sources.get(position, 0))
        self.unacked.release_all(cursor.parked_index)
        # Duplicates among the events that are being sent are judged when the numbers of these are recorded.
        frontier, dropped = live.state.frontier.position, mailbox.clear(after=max(self.in_flight, default=0))
        self.open_in_memory.clear()
        if undecided_to:
            cursor.park_undecided(frontier, undecided_to, len(dropped))
        else:
            kept_to = dropped[0].position - 1 if dropped else cursor.read_to
            cursor.park(max(frontier, kept_to), len(dropped))

    def take_read(self, page: BacklogPage, up_to: int, last_stored: LastStored) -> None:
        """Queue the events that were found, up to one that was there and is gone: that is recorded first."""
        known = last_stored.position
        found = self.cursor.take_read(page.events, complete=page.complete, up_to=up_to, known=known)
        for event in found.events:
            self.mailbox.append(event)
        if found.gone and not self.mailbox:
            first, last = found.gone
            missing = c.MissEvents(first, last, posted=self.posting.unrecorded, source=last_stored.source)
            self.live.record(missing, self.live.environment.clock.now())
            self.cursor.pass_missing(last)

    def hold_read_again(self, position: int, event: Event | None) -> None:
        """Hold the open event that was read again; if it is gone (None), record that."""
        live = self.live
        if self.has(position) or open_entry(live.state, position) is None:
            return
        if event is not None:
            self.open_in_memory[position] = event
        else:
            live.record(c.MissEvents(position, position), live.environment.clock.now())
            self.settle(position)
