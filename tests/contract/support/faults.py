"""A JetStream that misbehaves as told, between its caller and a server that does not."""

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from streams.nats.answers import Answer, Page, Refused, StoredMessage, Unanswered
from streams.nats.jetstream import JetStream
from streams.nats.wire import Wire
from tests.contract.support.servers import Server, opened

Action = Callable[[], Awaitable[object]]
Publish = Callable[[], Awaitable[Answer]]
Fault = Callable[[Publish], Awaitable[Answer]]


class FaultyJetStream(JetStream):
    """A JetStream with faults: each fault is told by subject, and used once.

    `faults`: what becomes of a publish. `before_last`: what happens before the last message is read from the
    leader, `answers`: what is answered. `shown`: the last sequence that the replica has which answers a read.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.before_last: defaultdict[str, deque[Action]] = defaultdict(deque)
        self.answers: defaultdict[str, deque[StoredMessage | None]] = defaultdict(deque)
        self.shown: defaultdict[str, deque[int]] = defaultdict(deque)
        self.published: defaultdict[str, list[tuple[bytes, dict[str, str]]]] = defaultdict(list)

    async def publish(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None, timeout_s: float = 2.0
    ) -> Answer:
        self.published[subject].append((data, headers or {}))

        async def publish() -> Answer:
            return await JetStream.publish(self, subject, data, headers, timeout_s)

        if self.faults[subject]:
            return await self.faults[subject].popleft()(publish)
        return await publish()

    async def read(
        self,
        stream: str,
        subject: str,
        sequence: int,
        batch: int = 256,
        max_bytes: int = 4 << 20,
        timeout_s: float = 5.0,
    ) -> Page:
        page = await super().read(stream, subject, sequence, batch, max_bytes, timeout_s)
        if not self.shown[subject]:
            return page
        end = self.shown[subject].popleft()
        return Page([message for message in page.messages if message.sequence <= end], 0)

    async def last_message(self, stream: str, subject: str) -> StoredMessage | None:
        if self.before_last[subject]:
            await self.before_last[subject].popleft()()
        if self.answers[subject]:
            return self.answers[subject].popleft()
        return await super().last_message(stream, subject)


async def ack_lost(publish: Publish) -> Answer:
    """Stores the message, and loses the answer."""
    await publish()
    return Unanswered("the ack was lost")


async def request_lost(_: Publish) -> Answer:
    return Unanswered("the request was lost")


async def stored_twice(publish: Publish) -> Answer:
    """Stores the message twice, and returns the second answer."""
    await publish()
    return await publish()


def refused(code: int) -> Fault:
    async def refuse(_: Publish) -> Answer:
        return Refused(code, "refused by the test")

    return refuse


def after(action: Action) -> Fault:
    """Something happens before it reaches the server."""

    async def act(publish: Publish) -> Answer:
        await action()
        return await publish()

    return act


@asynccontextmanager
async def misbehaving(server: Server) -> AsyncIterator[FaultyJetStream]:
    """One over a connection of its own."""
    async with opened(server, FaultyJetStream) as js:
        yield js
