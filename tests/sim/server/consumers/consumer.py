"""A pull consumer of the server in memory, as in nats-server 2.15.1.

It hands out messages of its filter to the pulls that wait, numbers each delivery, and hands out again what
was not acked in `ack_wait`. An ack counts by the message's stream sequence, from any sender; if the
policy is `all`, it counts for everything before, too. One in memory is gone with its server, and without any
request for its `inactive_threshold`; no client is told.

What nats-server does in a goroutine of its own, the handing out, is done aside here, too: `signal` only asks
for it, so that answers and deliveries overtake each other as they do there.
"""

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from tests.sim.server.consumers.consumer_config import SECOND, is_served
from tests.sim.server.consumers.pulls import BadPull, Pull, parse_pull, status
from tests.sim.server.consumers.waiting_pulls import Outlet, WaitingPulls
from tests.sim.server.streams.store import Headers, Stored, header_block
from tests.sim.server.timing import Alarm, rfc3339

if TYPE_CHECKING:
    from tests.sim.server.streams.stream import Stream

FLUSH_S = 0.1
"""Time before a crash in which changes may not have been written to disk."""

Floor = tuple[int, int]
"""A consumer sequence and the stream sequence that belongs to it."""


class Consumer:
    """`next` is the stream sequence it goes on from, `next_number` the consumer sequence it will give.

    What is on disk, and shown (`delivered`, `stored_floor`), differs from what the server goes by (`floor`):
    it knows nothing of what the filter skips.
    """

    def __init__(self, stream: "Stream", config: dict[str, Any], outlet: Outlet) -> None:
        self._stream = stream
        self._timing = stream.timing
        self._outlet = outlet
        self._waiting_pulls = WaitingPulls(stream.timing, outlet, config)
        self._alarm = Alarm(stream.timing, self._alarm_rings)
        self.created_ns = stream.timing.wall_ns()
        self.name: str = config["name"]
        self._again: deque[int] = deque()
        self._check_at = math.inf
        self._asked = False
        self._deleted = False
        self._asked_at = stream.timing.now()
        self._flushed_at = -math.inf
        self._changed_at = -math.inf
        self._configure(config)
        self._start_at(self._first_sequence())
        self._flushed = self._state()
        self._set_alarm()

    def _configure(self, config: dict[str, Any]) -> None:
        self.config = config
        self.filter: str = config.get("filter_subject", ">")
        self._ack_wait_s: float = config["ack_wait"] / SECOND
        self._unacked_max: int = config["max_ack_pending"]
        self._acks_all: bool = config["ack_policy"] == "all"
        self._inactive_s: float = config.get("inactive_threshold", 0) / SECOND or math.inf
        self._waiting_pulls.configure(config)

    def reconfigure(self, config: dict[str, Any]) -> None:
        self._configure(config)
        self._count_pending()
        self.signal()

    def _first_sequence(self) -> int:
        store = self._stream.store
        match self.config["deliver_policy"]:
            case "new":
                return store.last + 1
            case "by_start_sequence":
                return max(int(self.config["opt_start_seq"]), store.first)
            case _:
                return store.first

    def _start_at(self, sequence: int) -> None:
        """Everything from there on counts as never delivered."""
        self.next = sequence
        self.next_number = 1
        self.floor: Floor = (0, sequence - 1)
        self.delivered: Floor = self.floor
        self.stored_floor: Floor = self.floor
        self.unacked: dict[int, tuple[int, float]] = {}
        self.redelivered: dict[int, int] = {}
        self._again.clear()
        self._count_pending()

    def _count_pending(self) -> None:
        self.pending = self._stream.store.count(self.filter, self.next)

    # What the stream tells.

    def stored(self, sequence: int) -> None:
        if sequence >= self.next:
            self.pending += 1
        self.signal()

    def removed(self, sequence: int) -> None:
        if sequence >= self.next:
            self.pending -= 1
        if sequence in self.unacked:
            self._end_of(sequence, self.unacked[sequence][0])

    def purged(self, first: int) -> None:
        """A purge left nothing below `first`, and holes above it where it was one of a subject.

        What becomes free by it is handed out only at the next occasion.
        """
        self.next = max(self.next, first)
        number, sequence = self.floor
        there = self._stream.store.messages
        gone = [seq for seq in self.unacked if seq < first or seq not in there] if sequence < first else []
        for lost in gone:
            number = max(number, self.unacked.pop(lost)[0])
            self.redelivered.pop(lost, None)
        self.floor = (number, max(sequence, first - 1))
        self._again.clear()
        if not self.unacked:
            self.redelivered.clear()
            self.floor = (self.next_number - 1, self.next - 1)
        stored = self._below_unacked() if gone and self.unacked else self.stored_floor
        if stored[1] <= self.floor[1]:
            stored = self.floor
            self.delivered = (self.next_number - 1, self.next - 1)
        self.stored_floor = stored
        self._count_pending()

    # Pulls.

    def pull(self, reply: str, body: dict[str, Any] | int) -> None:
        """Take a request for messages, or say why not."""
        if not is_served(self.config):
            raise NotImplementedError(f"the server in memory cannot serve the consumer {self.config}")
        try:
            pull = parse_pull(reply, body, self._timing.now())
        except BadPull as error:
            self._say(reply, status(400, f"Bad Request - {error}"))
            return
        self._asked_at = self._timing.now()
        if self._waiting_pulls.is_full():
            self._tend(end_of_stream=False)
        if pull.no_wait and (end := self._end_at_once(pull)):
            self._say(reply, end)
        elif not self._waiting_pulls.is_full():
            self._waiting_pulls.join(pull)
            self.signal()
        elif not pull.heartbeat_s:
            self._say(reply, status(409, "Exceeded MaxWaiting"))

    def _end_at_once(self, pull: Pull) -> Headers | None:
        """Ends a request that asked not to wait."""
        there = max(self.pending, 0) + len(self._again)
        if there == 0 and pull.expires_at is None:
            return status(404, "No Messages")
        self._tend(end_of_stream=False)
        return status(408, "Requests Pending") if 0 < there < self._waiting_pulls.wanted() else None

    def _say(self, reply: str, headers: Headers) -> None:
        self._outlet.send(reply, headers=headers)

    def _tend(self, *, end_of_stream: bool) -> None:
        last = {"Nats-Last-Consumer": str(self.next_number - 1), "Nats-Last-Stream": str(self.next - 1)}
        self._waiting_pulls.tend(last, end_of_stream=end_of_stream)

    # Handing out.

    def signal(self) -> None:
        """There may be something to hand out."""
        if not self._asked and not self._deleted:
            self._asked = True
            self._timing.aside(self._hand_out)

    def _hand_out(self) -> None:
        self._asked = False
        if self._deleted or not self._stream.has_leader:
            return
        is_full = False
        while self._waiting_pulls:
            found = self._next_message()
            if found is None:
                is_full = len(self.unacked) >= self._unacked_max
                break
            message, deliveries = found
            if deliveries == 1:
                self.pending -= 1
            reply = self._ack_subject(message, deliveries)
            pull = self._waiting_pulls.next(_weight(message, reply))
            if pull is None:
                self._put_back(message, deliveries)
                break
            self._deliver(pull, message, reply)
        self._tend(end_of_stream=not is_full)
        self._set_alarm()

    def _next_message(self) -> tuple[Stored, int] | None:
        """The next message and the number of its deliveries; what has to be delivered again comes first."""
        store = self._stream.store
        while self._again:
            sequence = self._again.popleft()
            if again := store.messages.get(sequence):
                self.redelivered[sequence] = self.redelivered.get(sequence, 0) + 1
                return again, self.redelivered[sequence] + 1
        if len(self.unacked) >= self._unacked_max:
            return None
        message = store.next(self.filter, self.next)
        if message is None:
            self.next = max(self.next, store.last + 1)
            self.pending = 0
            return None
        self.next = message.sequence + 1
        return message, 1

    def _put_back(self, message: Stored, deliveries: int) -> None:
        sequence = message.sequence
        if deliveries == 1:
            self.next = sequence
            self.pending += 1
        else:
            self.redelivered[sequence] -= 1
            if not self.redelivered[sequence]:
                del self.redelivered[sequence]
            self._again.append(sequence)

    def _ack_subject(self, message: Stored, deliveries: int) -> str:
        numbers = f"{deliveries}.{message.sequence}.{self.next_number}.{message.at_ns}.{max(self.pending, 0)}"
        return f"$JS.ACK.{self._stream.name}.{self.name}.{numbers}"

    def _deliver(self, pull: Pull, message: Stored, reply: str) -> None:
        self._remember()
        now, sequence, number = self._timing.now(), message.sequence, self.next_number
        self.next_number += 1
        self.delivered = (number, max(self.delivered[1], sequence))
        first_number, _ = self.unacked.get(sequence, (number, now))
        self.unacked[sequence] = (first_number, now)
        self._check_at = min(self._check_at, now + self._ack_wait_s + 0.001)
        self._outlet.send(pull.reply, message.data, message.headers, message.subject, reply)
        if pull.left > 0 and pull.heartbeat_s:
            pull.heartbeat_at = now + pull.heartbeat_s
        elif pull.left <= 0 and pull.bytes_left > 0:
            self._say(pull.reply, pull.ended(409, "Batch Completed"))

    # Acks.

    def ack(self, sequence: int, number: int, body: bytes) -> bool:
        """Take an answer to a delivery; whether it is answered in turn, where that was asked for."""
        if body in (b"", b"+ACK", b"+OK") or body.startswith(b"+TERM"):
            if sequence >= self.next:
                return False
            self._end_of(sequence, number)
        elif body == b"-NAK":
            if self.floor[0] < number <= self.next_number and sequence in self.unacked:
                self._deliver_again(sequence)
                self.signal()
        elif body == b"+WPI":
            if sequence in self.unacked:
                self.unacked[sequence] = (self.unacked[sequence][0], self._timing.now())
        else:
            raise NotImplementedError(f"the server in memory does not know the ack {body!r}")
        return True

    def _settle(self, sequence: int) -> None:
        """Ends the deliveries of a message, for any reason."""
        self._remember()
        was_full = len(self.unacked) >= self._unacked_max
        entry = self.unacked.pop(sequence, None)
        self.redelivered.pop(sequence, None)
        if sequence in self._again:
            self._again.remove(sequence)
        if entry is None:
            return
        if not self.unacked:
            self.floor = (self.next_number - 1, self.next - 1)
            self.stored_floor = self.delivered
        else:
            # They differ after a purge; each moves when the message right above it is settled.
            if entry[0] == self.floor[0] + 1:
                self.floor = self._below_unacked()
            if entry[0] == self.stored_floor[0] + 1:
                self.stored_floor = self._below_unacked()
        if was_full:
            self.signal()

    def _end_of(self, sequence: int, number: int) -> None:
        """End a delivery, because it was acked or deleted; with the policy `all`, all before it, too."""
        if self._acks_all:
            self._settle_up_to(sequence, number)
        else:
            self._settle(sequence)

    def _settle_up_to(self, sequence: int, number: int) -> None:
        if sequence <= self.floor[1]:
            return
        for each in [each for each in self.unacked if each <= sequence]:
            self._settle(each)
        self.floor = self.stored_floor = (number, sequence)

    def _below_unacked(self) -> Floor:
        oldest = next(iter(self.unacked))
        return self.unacked[oldest][0] - 1, oldest - 1

    def _deliver_again(self, sequence: int) -> None:
        if sequence not in self._again:
            self._again.append(sequence)

    def _check_acks(self) -> None:
        """Delivers again what was not acked in time, in the order of the stream."""
        now = self._timing.now()
        self._check_at = math.inf
        for sequence, (number, at) in self.unacked.items():
            if at + self._ack_wait_s <= now:
                self._deliver_again(sequence)
                self.unacked[sequence] = (number, now)
            self._check_at = min(self._check_at, self.unacked[sequence][1] + self._ack_wait_s)

    # Time.

    def _set_alarm(self) -> None:
        idle_at = math.inf if self._waiting_pulls else self._asked_at + self._inactive_s
        at = min(self._check_at, self._waiting_pulls.next_at(), idle_at)
        self._alarm.set(None if at == math.inf else at)

    def _alarm_rings(self) -> None:
        if self._deleted:
            return
        if not self._waiting_pulls and self._asked_at + self._inactive_s <= self._timing.now():
            self._stream.consumers.pop(self.name)
            self._deleted = True
            return
        if self._check_at <= self._timing.now():
            self._check_acks()
        if self._stream.has_leader:
            self._tend(end_of_stream=True)
        self.signal()
        self._set_alarm()

    # What the API asks for.

    def info(self) -> dict[str, Any]:
        self._tend(end_of_stream=False)
        if self.next > self._stream.store.last:
            self.pending = 0
        info: dict[str, Any] = {
            "stream_name": self._stream.name,
            "name": self.name,
            "created": rfc3339(self.created_ns),
            "config": self.config,
            "delivered": {"consumer_seq": self.delivered[0], "stream_seq": self.delivered[1]},
            "ack_floor": {"consumer_seq": self.stored_floor[0], "stream_seq": self.stored_floor[1]},
            "num_ack_pending": len(self.unacked),
            "num_redelivered": len(self.redelivered),
            "num_waiting": len(self._waiting_pulls),
            "num_pending": max(self.pending, 0),
            "ts": rfc3339(self._timing.wall_ns()),
        }
        return info

    def delete(self) -> None:
        self._deleted = True
        self._waiting_pulls.end_all("Consumer Deleted")

    # Failing.

    def lose_leader(self) -> None:
        """Requests go with the leader; everything else is replicated."""
        self._waiting_pulls.end_all("Leadership Change")

    @property
    def in_memory(self) -> bool:
        """True if it is gone with its server."""
        return bool(self.config.get("mem_storage"))

    def vanish(self) -> None:
        """End without a word, since its server is gone."""
        self._deleted = True
        self._waiting_pulls.clear()

    def restart(self, forgetful: bool) -> None:
        """Come back from disk; `forgetful`: without what had not been written when the server was killed."""
        if forgetful and self._timing.now() - self._changed_at < FLUSH_S:
            self.delivered, self.stored_floor, self.unacked, self.redelivered = self._flushed
        self._waiting_pulls.clear()
        self._again.clear()
        self.floor = self.stored_floor
        self.next_number, self.next = self.delivered[0] + 1, self.delivered[1] + 1
        # Their times are kept in whole seconds.
        self.unacked = {
            sequence: (number, math.floor(at))
            for sequence, (number, at) in self.unacked.items()
            if sequence in self._stream.store.messages
        }
        self._check_at = self._timing.now() + min(0.5 + self._timing.chance.random(), self._ack_wait_s)
        self._count_pending()
        self._flushed = self._state()
        self._set_alarm()

    def _state(self) -> tuple[Floor, Floor, dict[int, tuple[int, float]], dict[int, int]]:
        return self.delivered, self.stored_floor, dict(self.unacked), dict(self.redelivered)

    def _remember(self) -> None:
        """To be called before a change: what is on disk lags behind by up to `FLUSH_S`."""
        self._changed_at = self._timing.now()
        if self._changed_at - self._flushed_at >= FLUSH_S:
            self._flushed, self._flushed_at = self._state(), self._changed_at


def _weight(message: Stored, reply: str) -> int:
    """The bytes that a message counts for in a pull's `max_bytes`."""
    return len(message.subject) + len(reply) + len(header_block(message.headers)) + len(message.data)
