"""A JetStream that misbehaves as told, in front of a server that does not."""

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from streams.nats.answers import Answer, Page, Refused, StoredMessage, Unanswered
from streams.nats.wire import Wire
from tests.contract.support.jetstream_proxy import Call, JetStreamProxy
from tests.contract.support.servers import Server, opened

Action = Callable[[], Awaitable[object]]
Publish = Callable[[], Awaitable[Answer]]
Fault = Callable[[Publish], Awaitable[Answer]]


class FaultyJetStream(JetStreamProxy):
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

    async def around(self, method: str, call: Call, *args: Any, **options: Any) -> Any:
        match method, args:
            case "publish", (subject, data, *more):
                headers = more[0] if more else options.get("headers")
                self.published[subject].append((data, headers or {}))
                return await self.faults[subject].popleft()(call) if self.faults[subject] else await call()
            case "read", (_, subject, *_):
                page = await call()
                return up_to(page, self.shown[subject].popleft()) if self.shown[subject] else page
            case "last_message", (_, subject):
                if self.before_last[subject]:
                    await self.before_last[subject].popleft()()
                return self.answers[subject].popleft() if self.answers[subject] else await call()
            case _:
                return await call()


def up_to(page: Page, end: int) -> Page:
    """The page as a replica shows it that has nothing beyond `end`."""
    return Page([message for message in page.messages if message.position <= end], 0)


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
