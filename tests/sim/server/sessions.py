"""Connections as the server sees them, and what clients send over them."""

from collections.abc import Callable

from msgspec import Struct

from streams.nats.wire import Message


class Subscribe(Struct, frozen=True):
    number: int
    subject: str


class Unsubscribe(Struct, frozen=True):
    number: int


Frame = Message | Subscribe | Unsubscribe
"""A frame that a client sends."""


class Session:
    """The server's side of one connection.

    `deliver` carries a message to one of the client's subscriptions; `lost` tells it that the server closed
    the connection; `forget` is the server's. `name` is what the client calls itself.
    """

    def __init__(
        self,
        deliver: Callable[[int, Message], None],
        lost: Callable[[], None],
        forget: Callable[["Session"], None],
        name: str = "",
    ) -> None:
        self.name = name
        self.deliver = deliver
        self.open = True
        self.subscriptions: dict[int, str] = {}
        self._lost = lost
        self._forget = forget

    def close(self) -> None:
        """The client is gone; nothing listens here any more."""
        if self.open:
            self.open = False
            self._forget(self)

    def drop(self) -> None:
        """Closes the connection from the server's side."""
        if self.open:
            self.close()
            self._lost()
