"""Messages on their way into a stream, and the headers that a stream obeys."""

from tests.sim.server.streams.store import Headers, size_of

LAST_OF_STREAM = "Nats-Expected-Last-Sequence"
LAST_ID = "Nats-Expected-Last-Msg-Id"
LAST = "Nats-Expected-Last-Subject-Sequence"
LAST_OF = "Nats-Expected-Last-Subject-Sequence-Subject"
MESSAGE_ID = "Nats-Msg-Id"
TTL = "Nats-TTL"
ROLLUP = "Nats-Rollup"
MARKER = "Nats-Marker-Reason"

Draft = tuple[str, bytes, Headers | None]
"""Subject, data, headers of a message that is not stored yet."""


class Staged:
    """The changes that an atomic batch makes before the message in question; else none."""

    def __init__(self) -> None:
        self.subjects: set[str] = set()
        self.ids: set[str] = set()
        self.count = 0
        self.bytes = 0

    def add(self, draft: Draft) -> None:
        subject, data, headers = draft
        self.subjects.add(subject)
        if headers and MESSAGE_ID in headers:
            self.ids.add(headers[MESSAGE_ID])
        self.count += 1
        self.bytes += size_of(subject, headers, data)


NOTHING = Staged()
