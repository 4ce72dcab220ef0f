"""The messages that are handed out and not released, and how far the floor has come.

Every message that the consumer hands out is unacked until a fact releases it: the fact that settles it, or
the `Parked` under which it is dropped from memory. A release carries `fact_index`, the index of the last fact
that it depends on. The floor is the end of the unbroken run of released messages. A takeover begins to read
there, and everything up to the floor of the confirmed facts is acked.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from msgspec import Struct


class UnackedMessage(Struct, gc=False, eq=False):
    """One message that was handed out; `release_index` is the index of the fact that releases it."""

    position: int
    receiver: str
    since: float
    release_index: int | None = None

    def __lt__(self, other: "UnackedMessage") -> bool:
        return self.since < other.since


class NodeHolders:
    """Number of receivers that hold messages, in all shards of a node."""

    __slots__ = ("receiver_count",)

    def __init__(self) -> None:
        self.receiver_count = 0


class ShardUnacked:
    """The unacked messages of one shard.

    - `received`: the highest position that was handed out.
    - `unacked_count`: number of messages that are held; `holder_count`: number of receivers that hold any.
    - `joined_count`: how many of them will be sent in the POST of an earlier one of their receiver;
      `joinable_count`: how many more could be, if they came.
    - `spare_max`: how many released messages may be kept behind one that is held.
    """

    spare_max = 1024

    def __init__(self, floor: int) -> None:
        self.received = floor
        self.unacked_count = 0
        self.holder_count = 0
        self.joined_count = 0
        self.joinable_count = 0
        self._floor = floor
        # Tuples that begin with the position, compared in C. A position that comes again occurs twice.
        self._by_position: list[tuple[int, UnackedMessage]] = []
        self._by_age: deque[UnackedMessage] = deque()

    def add(self, position: int, receiver: str, now: float) -> UnackedMessage:
        """Hold a message that came. The caller makes sure that a position is held once at a time."""
        message = UnackedMessage(position, receiver, now)
        heappush(self._by_position, (position, message))
        self._by_age.append(message)
        self.unacked_count += 1
        if position > self.received:
            self.received = position
        return message

    def release(self, message: UnackedMessage, fact_index: int) -> None:
        """Release the message: the floor may pass it once that fact is confirmed.

        With 0 the message is about to be held again.
        """
        message.release_index = fact_index
        self.unacked_count -= 1

    def lowest_of_others(self, receiver: str) -> float:
        """The lowest position that is held for any other receiver; infinite if none is."""
        held = (
            each.position for each in self._by_age if each.release_index is None and each.receiver != receiver
        )
        return min(held, default=float("inf"))

    def floor(self, index: int) -> int:
        """The end of the unbroken run of messages released by the facts up to `index`. It never falls."""
        heap = self._by_position
        while heap and (fact_index := heap[0][1].release_index) is not None and fact_index <= index:
            heappop(heap)
        self._floor = max(self._floor, heap[0][0] - 1 if heap else self.received)
        return self._floor

    def forget(self, index: int) -> None:
        """Drop what is released up to `index`: one message can be held for hours, with all others behind it.

        Those released by later facts are kept, so nothing is done while there are too few of the others.
        """
        enough = self.spare_max + 2 * self.unacked_count
        if len(self._by_position) > enough:
            self._by_position = [
                each
                for each in self._by_position
                if (fact_index := each[1].release_index) is None or fact_index > index
            ]
            heapify(self._by_position)
        if len(self._by_age) > enough:
            self._by_age = deque(each for each in self._by_age if each.release_index is None)

    def overdue(self, before: float) -> Iterator[str]:
        """Yield the receivers that hold a message which came before the time `before`."""
        ages = self._by_age
        while ages and ages[0].release_index is not None:
            ages.popleft()
        for message in ages:
            if message.since >= before:
                return
            if message.release_index is None:
                yield message.receiver


class ReceiverUnacked:
    """The messages of one receiver that are handed out and not released, by position.

    The first `batched_max` messages do not wait for each other: they go in the same POSTs.
    """

    __slots__ = ("_shard", "batched_max", "messages", "receiver")

    def __init__(self, receiver: str, shard_unacked: ShardUnacked) -> None:
        self.receiver = receiver
        self.messages: dict[int, UnackedMessage] = {}
        self.batched_max = 1
        self._shard = shard_unacked

    @property
    def first(self) -> int:
        """The lowest position; 0 if there is none."""
        return min(self.messages, default=0)

    def add(self, position: int, now: float) -> bool:
        """Hold a message that came; returns False if it is held already."""
        if position in self.messages:
            return False
        if not self.messages:
            self._shard.holder_count += 1
            self._shard.joinable_count += self.batched_max - 1
        elif self.batched_max > 1 and len(self.messages) < self.batched_max:
            self._join(1)
        self.messages[position] = self._shard.add(position, self.receiver, now)
        return True

    def release(self, position: int, fact_index: int) -> None:
        """Release the message, if it is held: the floor may pass it once that fact is confirmed."""
        message = self.messages.pop(position, None)
        if message is not None:
            self._shard.release(message, fact_index)
            if not self.messages:
                self._shard.holder_count -= 1
                self._shard.joinable_count -= self.batched_max - 1
            elif self.batched_max > 1 and len(self.messages) < self.batched_max:
                self._join(-1)

    def set_batched_max(self, count: int) -> None:
        """Let the first `count` messages go in the same POSTs."""
        if self.messages:
            self._join(-self._joined)
            self._shard.joinable_count += count - self.batched_max
        self.batched_max = count
        if self.messages:
            self._join(self._joined)

    def _join(self, count: int) -> None:
        """Count so many more messages that will be sent in the POST of an earlier one."""
        self._shard.joined_count += count
        self._shard.joinable_count -= count

    @property
    def _joined(self) -> int:
        return max(0, min(len(self.messages), self.batched_max) - 1)

    def release_all(self, fact_index: int) -> None:
        """Release all messages: the floor may pass them once that fact is confirmed."""
        self._join(-self._joined)
        messages, self.messages = self.messages, {}
        if messages:
            self._shard.holder_count -= 1
            self._shard.joinable_count -= self.batched_max - 1
        for message in messages.values():
            self._shard.release(message, fact_index)
