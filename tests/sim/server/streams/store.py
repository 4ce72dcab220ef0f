"""The messages of one stream, on one replica: in order, by subject, with their sizes."""

from bisect import bisect_left
from itertools import takewhile

from msgspec import Struct

from tests.sim.server.subjects import covers, is_literal

Headers = dict[str, str]

RECORD_BYTES = 30
"""Bytes that nats-server's file store adds to subject and data; 4 more if there are headers."""


class Stored(Struct, frozen=True, gc=False):
    subject: str
    sequence: int
    at_ns: int
    headers: Headers | None
    data: bytes

    @property
    def size(self) -> int:
        """The bytes that a message counts for in `max_bytes`."""
        return size_of(self.subject, self.headers, self.data)


def size_of(subject: str, headers: Headers | None, data: bytes) -> int:
    block = 0 if headers is None else 4 + len(header_block(headers))
    return RECORD_BYTES + len(subject) + block + len(data)


def header_block(headers: Headers | None) -> bytes:
    """The headers as they go over the wire; an empty block is not the same as none."""
    if headers is None:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode()


class Store:
    """`first` is `last` + 1 when it is empty."""

    def __init__(self) -> None:
        self.messages: dict[int, Stored] = {}
        self.subjects: dict[str, list[int]] = {}
        self.first = 1
        self.last = 0
        self.last_ns = 0
        self.bytes = 0

    def add(self, message: Stored) -> None:
        self.messages[message.sequence] = message
        self.subjects.setdefault(message.subject, []).append(message.sequence)
        self.last, self.last_ns = message.sequence, message.at_ns
        self.bytes += message.size

    def remove(self, sequence: int) -> Stored | None:
        message = self.messages.pop(sequence, None)
        if message is None:
            return None
        sequences = self.subjects[message.subject]
        del sequences[bisect_left(sequences, sequence)]
        if not sequences:
            del self.subjects[message.subject]
        self.bytes -= message.size
        while self.first <= self.last and self.first not in self.messages:
            self.first += 1
        return message

    def compact(self, first: int) -> list[Stored]:
        """Drop all below `first`; beyond the end it moves the end, too."""
        dropped = [self.messages[sequence] for sequence in takewhile(first.__gt__, self.messages)]
        for message in dropped:
            self.remove(message.sequence)
        self.first = max(self.first, first)
        self.last = max(self.last, first - 1)
        return dropped

    def next(self, pattern: str, sequence: int) -> Stored | None:
        """The first message that the pattern covers at or after the sequence."""
        if is_literal(pattern):
            sequences = self.subjects.get(pattern, [])
            place = bisect_left(sequences, sequence)
            return self.messages[sequences[place]] if place < len(sequences) else None
        for candidate in range(max(sequence, self.first), self.last + 1):
            message = self.messages.get(candidate)
            if message is not None and covers(pattern, message.subject):
                return message
        return None

    def sequence_at(self, at_ns: int) -> int:
        """The first sequence that was stored at the instant or later; behind the last where none was."""
        stored = (message.sequence for message in self.messages.values() if message.at_ns >= at_ns)
        return next(stored, self.last + 1)

    def last_of(self, pattern: str) -> Stored | None:
        """The newest message that the pattern covers."""
        sequence = max((s[-1] for subject, s in self._matching(pattern)), default=0)
        return self.messages[sequence] if sequence else None

    def last_sequence_of(self, subject: str) -> int:
        """The last sequence of a literal subject; 0 when it has no message."""
        sequences = self.subjects.get(subject)
        return sequences[-1] if sequences else 0

    def count(self, pattern: str, sequence: int) -> int:
        """Counts the messages at or after the sequence that the pattern covers."""
        return sum(len(s) - bisect_left(s, sequence) for _, s in self._matching(pattern))

    def counts(self, pattern: str) -> dict[str, int]:
        """The subjects that the pattern covers, and how many messages each has."""
        return {subject: len(sequences) for subject, sequences in self._matching(pattern)}

    def _matching(self, pattern: str) -> list[tuple[str, list[int]]]:
        if is_literal(pattern):
            return [(pattern, self.subjects[pattern])] if pattern in self.subjects else []
        return [item for item in self.subjects.items() if covers(pattern, item[0])]
