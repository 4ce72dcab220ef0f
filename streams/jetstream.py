"""JetStream over a `Wire`: publishing, reading and the management API, with nothing that can hang.

Why not nats-py's own: its `publish_async` leaves futures that never end after an error or a lost
connection, and it answers "refused" and "unknown" with the same exceptions. Here every future ends,
and an outcome that is unknown is called so.

One inbox subscription takes the answers to everything. Deadlines are held by one sweep, not by a timer
each, so that a publish costs one future.
"""

from collections.abc import Sequence
from typing import Any

from streams.answers import Answer, ConsumerInfo, Page, Put, StoredMessage, StreamInfo
from streams.wire import Message, Wire


class JetStream:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    async def start(self) -> None:
        """Subscribe to the answers. To be called once, before anything else."""

    async def stop(self) -> None:
        """Drop the subscription; what is still open ends as unanswered. The wire stays open."""

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = 2.0
    ) -> Answer:
        """Store one message. Ends at once as `Unanswered` when the connection is, or gets, lost."""
        raise NotImplementedError

    async def publish_batch(self, puts: Sequence[Put], timeout_s: float = 5.0) -> Answer:
        """Store 1 to 1,000 messages of one stream or none of them (ADR-50); the stream allows it."""
        raise NotImplementedError

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        """The newest message of `subject` (may be a wildcard), from the leader."""
        raise NotImplementedError

    async def next_message(self, stream: str, subject: str, sequence: int) -> StoredMessage | None:
        """The first message of `subject` (may be a wildcard) at or after `sequence`, from the leader."""
        raise NotImplementedError

    async def message(self, stream: str, sequence: int) -> StoredMessage | None:
        """The message at `sequence`, from the leader."""
        raise NotImplementedError

    async def read(
        self,
        stream: str,
        subject: str,
        sequence: int,
        batch: int = 256,
        max_bytes: int = 4 << 20,
        timeout_s: float = 5.0,
    ) -> Page:
        """Messages of `subject` (may be a wildcard) from `sequence` on, from any replica (ADR-31)."""
        raise NotImplementedError

    async def subjects(self, stream: str, subject: str) -> dict[str, int]:
        """The subjects that match and how many messages each has, from the leader."""
        raise NotImplementedError

    async def stream_info(self, stream: str) -> StreamInfo | None:
        raise NotImplementedError

    async def stream_create(self, config: dict[str, Any]) -> StreamInfo:
        """Raises `ApiError` 10058 where a stream of the name has another configuration."""
        raise NotImplementedError

    async def stream_update(self, config: dict[str, Any]) -> StreamInfo:
        raise NotImplementedError

    async def purge(self, stream: str, up_to: int) -> int:
        """Drop all messages below the sequence `up_to`; returns how many."""
        raise NotImplementedError

    async def consumer_info(self, stream: str, consumer: str) -> ConsumerInfo | None:
        raise NotImplementedError

    async def consumer_create(self, stream: str, config: dict[str, Any]) -> ConsumerInfo:
        """Create the durable `config["durable_name"]`; the same again changes nothing."""
        raise NotImplementedError

    async def consumer_reset(self, stream: str, consumer: str, sequence: int | None = None) -> int:
        """Deliver again from `sequence` on (None: from behind the ack floor); returns where it starts.

        Consumer sequences restart at 1, and everything from there counts as never delivered, also what
        was acked already.
        """
        raise NotImplementedError

    async def consumer_unpin(self, stream: str, consumer: str, group: str) -> None:
        """Take the pin from whoever has it; the next pull in the line gets a new one."""
        raise NotImplementedError

    async def request(
        self, subject: str, data: bytes, timeout_s: float = 2.0, headers: dict[str, str] | None = None
    ) -> Message:
        """Ask and wait for one answer. Raises `Unavailable`."""
        raise NotImplementedError
