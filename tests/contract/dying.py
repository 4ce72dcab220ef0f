"""A JetStream of a process that dies at a request that the test chooses: what it asks later is not sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.nats.answers import Answer, Page
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message, Wire
from tests.contract.servers import Server


class Died(Exception):
    """What the dead process would have done next."""


class DyingJetStream(JetStream):
    """It dies at the request number `at`, from 1 on; `heard`: when that was dealt with, else before it goes.

    `asked` counts the requests; 0 for `at` means never. `spares_letters`: it dies before it deletes any.
    """

    def __init__(self, wire: Wire, at: int, *, heard: bool) -> None:
        super().__init__(wire)
        self.asked = 0
        self._at = at
        self._heard = heard
        self.spares_letters = False

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = 2.0
    ) -> Answer:
        here = self._step()
        answer = await super().publish(subject, data, headers, timeout_s)
        self._end(here)
        return answer

    async def request(
        self, subject: str, data: bytes, timeout_s: float = 2.0, headers: dict[str, str] | None = None
    ) -> Message:
        if self.spares_letters and ".STREAM.MSG.DELETE." in subject:
            raise Died
        here = self._step()
        answer = await super().request(subject, data, timeout_s, headers)
        self._end(here)
        return answer

    async def read(
        self,
        stream: str,
        subject: str,
        sequence: int,
        batch: int = 256,
        max_bytes: int = 4 << 20,
        timeout_s: float = 5.0,
    ) -> Page:
        here = self._step()
        page = await super().read(stream, subject, sequence, batch, max_bytes, timeout_s)
        self._end(here)
        return page

    def _step(self) -> int:
        self.asked += 1
        if self._at and self.asked >= self._at + self._heard:
            raise Died
        return self.asked

    def _end(self, here: int) -> None:
        if self._at and self.asked >= self._at and here >= self._at:
            raise Died


@asynccontextmanager
async def dying(server: Server, at: int, *, heard: bool) -> AsyncIterator[DyingJetStream]:
    """One over a connection of its own."""
    wire = await server.connect("dying")
    js = DyingJetStream(wire, at, heard=heard)
    await js.start()
    yield js
    await js.stop()
    await wire.close()
