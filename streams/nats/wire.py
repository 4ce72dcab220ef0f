"""The port to NATS: core NATS only, and as little of it as possible.

JetStream is built on top of it (`streams.nats.jetstream`). So the simulator replaces only this port with a
server in memory, and publisher, pull loop, follower, journal and claim run in it unchanged.
`streams.nats.connection.NatsWire` is the real implementation.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from streams.nats.answers import Put


class Message(Struct, frozen=True, gc=False):
    """One received message.

    An inline status of the server (`NATS/1.0 404 No Messages`) appears as the headers `Status` and
    `Description`. If a header is repeated, the last value counts. Too many headers, or too large ones, are
    not parsed; `streams.nats.wire_names.UNREAD` takes their place. `size` is the number of bytes in subject,
    reply subject, headers and data as they came, which nats-server counts for a limit in bytes.
    """

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, str] | None = None
    size: int = 0


class Subscription(Protocol):
    async def unsubscribe(self) -> None:
        """End the subscription: the handler is not called again. A second call does nothing."""


class Wire(Protocol):
    """One connection to a NATS server (or cluster), which reconnects forever when it breaks."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def max_payload(self) -> int:
        """The largest message that the server accepts, headers included, in bytes."""

    @property
    def server_version(self) -> str:
        """The version of the server of the current or last connection, such as `2.15.1`."""

    def new_inbox(self) -> str:
        """A subject that no other client uses; answers may come to it and to the subjects below it."""

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Give the message to the connection; it may not have been sent yet when this returns.

        While the connection is lost, the message is kept and sent on the next one. Raises `Disconnected` only
        if the wire was closed.
        """

    @property
    def unsent(self) -> int:
        """Bytes that were handed to the connection, and that the network has not taken yet."""

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        """Hand over several messages at once, each with its reply subject, and never wait.

        They are added to the unsent bytes without a limit, so the caller checks `unsent` before. Otherwise it
        works like `publish`.
        """

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        """Publish the same data to each of these subjects, which servers gave us; each one costs little."""

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, headers: bool = True
    ) -> Subscription:
        """Call `handler` for each message, in the order of arrival; it must neither block nor raise.

        The subscription survives reconnects; messages published in between are missed. Without `headers`,
        those of a message are not parsed; they may take 900 kB.
        """

    def on_change(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with False when the connection is lost, with True when there is a new one."""

    def on_forbidden(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with a subject, in lower case, that our user may not publish or subscribe to."""

    async def close(self) -> None:
        """Send buffered data, then close. A second call does nothing."""
