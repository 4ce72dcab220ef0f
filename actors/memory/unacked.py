"""The messages that are handed out and not acked: which of them may be acked, and how far the floor has come.

Every message that the consumer hands out is bound until a fact releases it: the fact that settles it, or the
`Parked` under which it is dropped from memory. A release carries a mark, the index of the last fact that it
depends on; once the journal has confirmed that index, the message may be acked. The floor is the end of the
unbroken run of released messages. A takeover begins to read there, so the floor never depends on an ack.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush


class Binding:
    """One message that was handed out; `mark` is None until it is released."""

    __slots__ = ("mark", "position", "receiver", "reply", "since")

    def __init__(self, position: int, receiver: str, reply: str, since: float) -> None:
        self.position = position
        self.receiver = receiver
        self.reply = reply
        self.since = since
        self.mark: int | None = None

    def __lt__(self, other: "Binding") -> bool:
        return self.since < other.since


class Bindings:
    """All bindings of one shard.

    - `received`: the highest position that was handed out.
    - `spare_max`: how many useless bindings may be kept behind one that is held.
    """

    spare_max = 1024

    def __init__(self, floor: int) -> None:
        self.received = floor
        self.bound = 0
        self._floor = floor
        # Tuples that begin with the position, compared in C. A position that was bound again occurs twice.
        self._by_position: list[tuple[int, Binding]] = []
        self._by_age: deque[Binding] = deque()
        self._released: deque[Binding] = deque()

    def bind(self, position: int, receiver: str, reply: str, now: float) -> Binding:
        """Hold a message that came. The caller makes sure that a position is bound once at a time."""
        binding = Binding(position, receiver, reply, now)
        heappush(self._by_position, (position, binding))
        self._by_age.append(binding)
        self.bound += 1
        if position > self.received:
            self.received = position
        return binding

    def release(self, binding: Binding, mark: int) -> None:
        """Let the message be acked once the fact with index `mark` is confirmed."""
        binding.mark = mark
        self._released.append(binding)
        self.bound -= 1

    def drop(self, binding: Binding) -> None:
        """Release without an ack: the message is about to be bound again, for another receiver."""
        binding.mark = 0
        self.bound -= 1

    def lowest_but(self, receiver: str) -> float:
        """The lowest position that is held for any other receiver; infinite if none is."""
        held = (each.position for each in self._by_age if each.mark is None and each.receiver != receiver)
        return min(held, default=float("inf"))

    def floor(self, index: int) -> int:
        """The end of the unbroken run of messages released by the facts up to `index`. It never falls."""
        heap = self._by_position
        while heap and (mark := heap[0][1].mark) is not None and mark <= index:
            heappop(heap)
        self._floor = max(self._floor, heap[0][0] - 1 if heap else self.received)
        return self._floor

    def confirmed(self, index: int) -> list[str]:
        """The reply subjects of the messages that may be acked now.

        The floor of the next flush may already be as high as these. They are not kept until that flush, which
        may be hours away if all receivers are parked.
        """
        self.floor(index)
        replies = []
        released = self._released
        while released and (mark := released[0].mark) is not None and mark <= index:
            if reply := released.popleft().reply:  # An event that was found in the stream has none.
                replies.append(reply)
        self._forget(index)
        return replies

    def _forget(self, index: int) -> None:
        """Drop acked bindings: one message can be held for hours, with everything else behind it."""
        enough = self.spare_max + 2 * (self.bound + len(self._released))
        if len(self._by_position) > enough:
            self._by_position = [
                each for each in self._by_position if (mark := each[1].mark) is None or mark > index
            ]
            heapify(self._by_position)
        if len(self._by_age) > enough:
            self._by_age = deque(each for each in self._by_age if each.mark is None)

    def overdue(self, before: float) -> Iterator[str]:
        """Yield the receivers that hold a message which came before the time `before`."""
        ages = self._by_age
        while ages and ages[0].mark is not None:
            ages.popleft()
        for binding in ages:
            if binding.since >= before:
                return
            if binding.mark is None:
                yield binding.receiver


class Unacked:
    """The messages of one receiver that are handed out and not released, by position."""

    __slots__ = ("_bindings", "bound", "receiver")

    def __init__(self, receiver: str, bindings: Bindings) -> None:
        self.receiver = receiver
        self.bound: dict[int, Binding] = {}
        self._bindings = bindings

    @property
    def first(self) -> int:
        """The lowest position; 0 if there is none."""
        return min(self.bound, default=0)

    def bind(self, position: int, reply: str, now: float) -> bool:
        """Hold a message that came. If it is bound already, take the newer reply subject and return False."""
        before = self.bound.get(position)
        if before is not None:
            before.reply = reply or before.reply
            return False
        self.bound[position] = self._bindings.bind(position, self.receiver, reply, now)
        return True

    def release(self, position: int, mark: int) -> None:
        """Let the message, if it is bound, be acked after the fact with index `mark` is confirmed."""
        binding = self.bound.pop(position, None)
        if binding is not None:
            self._bindings.release(binding, mark)

    def release_all(self, mark: int) -> None:
        """Let all of them be acked after that fact is confirmed."""
        bound, self.bound = self.bound, {}
        for binding in bound.values():
            self._bindings.release(binding, mark)

    def drop(self, position: int) -> str:
        """Release a message without an ack; returns its reply subject, empty if it is not bound."""
        binding = self.bound.pop(position, None)
        if binding is None:
            return ""
        self._bindings.drop(binding)
        return binding.reply
