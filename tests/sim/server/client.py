"""The client's side of a connection to the server in memory: the port `streams.nats.wire.Wire`."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from msgspec import Struct

from streams.nats.answers import Put
from streams.nats.errors import Disconnected
from streams.nats.wire import Message
from tests.sim.server.sessions import Frame, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tests.sim.server.core import FakeServer

Handler = Callable[[Message], None]


class Listening:
    """A subscription."""

    def __init__(self, wire: "ClientWire", number: int) -> None:
        self._wire = wire
        self._number = number

    async def unsubscribe(self) -> None:
        self._wire.unsubscribe(self._number)


class Listener(Struct, frozen=True):
    subject: str
    handler: Handler
    headers: bool


class ClientWire:
    """The part that all wires share, whatever carries their frames: `transmit` is left to subclasses."""

    server_version = "2.15.1"

    def __init__(self, name: str, max_payload: int) -> None:
        self.name = name
        self.max_payload = max_payload
        self.closed = False
        self.listeners: dict[int, Listener] = {}
        self._numbers = count(1)
        self._inboxes = count(1)
        self._watchers: list[Callable[[bool], None]] = []

    @property
    def is_connected(self) -> bool:
        raise NotImplementedError

    def transmit(self, frame: Frame) -> None:
        raise NotImplementedError

    def new_inbox(self) -> str:
        return f"_INBOX.{self.name}-{next(self._inboxes)}"

    async def publish(
        self, subject: str, data: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self._check_open()
        clean = None if headers is None else {name.strip(): text.strip() for name, text in headers.items()}
        self.transmit(Message(subject, data, reply, clean))

    unsent = 0

    def send(self, puts: Sequence[Put], replies: Sequence[str]) -> None:
        self._check_open()
        for put, reply in zip(puts, replies, strict=True):
            self.transmit(Message(put.subject, put.data, reply, put.headers))

    async def publish_each(self, subjects: Sequence[str], data: bytes) -> None:
        for subject in subjects:
            await self.publish(subject, data)

    async def subscribe(self, subject: str, handler: Handler, *, headers: bool = True) -> Listening:
        self._check_open()
        number = next(self._numbers)
        self.listeners[number] = Listener(subject, handler, headers)
        self.transmit(Subscribe(number, subject))
        return Listening(self, number)

    def unsubscribe(self, number: int) -> None:
        if self.listeners.pop(number, None) is not None and not self.closed:
            self.transmit(Unsubscribe(number))

    def on_change(self, listener: Callable[[bool], None]) -> None:
        self._watchers.append(listener)

    def on_forbidden(self, listener: Callable[[str], None]) -> None:
        """This server permits everything to everybody."""

    def receive(self, number: int, message: Message) -> None:
        """A message for one of the subscriptions has come in."""
        listener = self.listeners.get(number)
        if listener is None:
            return
        if not listener.headers:
            message = Message(message.subject, message.data, message.reply, None, message.size)
        listener.handler(message)

    def tell(self, connected: bool) -> None:
        for watcher in self._watchers:
            watcher(connected)

    def _check_open(self) -> None:
        if self.closed:
            raise Disconnected("the connection to NATS was closed")


class LoopWire(ClientWire):
    """A connection within one asyncio loop, in real time and without faults: for contract tests."""

    def __init__(self, server: "FakeServer", name: str) -> None:
        super().__init__(name, server.max_payload)
        self._loop = asyncio.get_running_loop()
        self._session = server.open(self._deliver, self._lost)
        self._server = server

    @property
    def is_connected(self) -> bool:
        return not self.closed and self._session.open

    def transmit(self, frame: Frame) -> None:
        self._loop.call_soon(self._server.receive, self._session, frame)

    def _deliver(self, number: int, message: Message) -> None:
        self._loop.call_soon(self.receive, number, message)

    def _lost(self) -> None:
        self.tell(False)

    async def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.listeners.clear()
        self.tell(False)
        # Behind all that was transmitted before.
        self._loop.call_soon(self._session.close)
