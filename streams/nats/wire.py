"""The port to NATS for everything here: core NATS only, and as little of it as possible.

JetStream is built on top of it (`streams.nats.jetstream`), so the simulator replaces only this port by a
server in memory, and publisher, pull loop, follower, journal and claim run in it as they are.
`streams.nats.connection.NatsWire` is the real one.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from streams.nats.answers import Put


class Message(Struct, frozen=True, gc=False):
    """One message as it came in.

    An inline status of the server (`NATS/1.0 404 No Messages`) appears as the headers `Status` and
    `Description`. Of a repeated header the last value counts. `unread` counts the bytes of its headers where
    the subscription wants none.
    """

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, str] | None = None
    unread: int = 0


class Subscription(Protocol):
    async def unsubscribe(self) -> None:
        """End the subscription: the handler is not called again. Does nothing the second time."""


class Wire(Protocol):
    """One connection to a NATS server (or cluster), made again forever when it breaks."""

    @property
    def connected(self) -> bool: ...

    @property
    def max_payload(self) -> int:
        """The largest message the server takes, headers included, in bytes."""

    @property
    def server_version(self) -> str:
        """Such as `2.15.1`; that of the server we are, or were last, connected to."""

    def new_inbox(self) -> str:
        """A subject that no other client uses; answers may come to it and to the subjects below it."""

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Hand the message to the connection; that it was sent is not known when this returns.

        While the connection is lost, it is kept and sent on the next one. Raises `Disconnected` only
        when the wire was closed.
        """

    @property
    def unsent(self) -> int:
        """Bytes that were handed to the connection, and that the network has not taken yet."""

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        """Hand over several messages at once, each with its reply subject, and never wait.

        However much is unsent, it grows by them: who calls this has to look at `unsent` before. Otherwise it
        is as `publish`.
        """

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        """Publish the same to each of these subjects, which servers gave us; it costs little for each."""

    async def subscribe(
        self, subject: str, handler: Callable[[Message], None], *, headers: bool = True
    ) -> Subscription:
        """Call `handler` for each message, in the order of arrival; it must neither block nor raise.

        The subscription outlives reconnects; what was published in between is not seen. Without `headers`
        those of a message are left unread, which may be 900 kB of them.
        """

    def on_change(self, listener: Callable[[bool], None]) -> None:
        """Tell `listener` False when the connection is lost, True when there is a new one."""

    def on_refusal(self, listener: Callable[[str], None]) -> None:
        """Tell `listener` a subject, in lower case, that our user may not publish to or subscribe to."""

    async def close(self) -> None:
        """Send what is buffered, then end. Does nothing the second time."""
