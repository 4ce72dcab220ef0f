"""A JetStream that lets a test intercept each call."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from streams.nats.answers import Answer, Page, Put, StoredMessage
from streams.nats.jetstream import JetStream
from streams.nats.wire import Message
from streams.tasks import reporting

Call = Callable[[], Awaitable[Any]]
"""Carries out a call of which `JetStreamProxy.around` is told."""


class JetStreamProxy(JetStream):
    """Hands `around` each publish, request, read, and look for a last message, which may contain requests."""

    async def around(self, method: str, call: Call, *args: Any, **options: Any) -> Any:
        """Carries out a call of that method, with these arguments; overridden by what differs."""
        raise NotImplementedError

    async def publish(self, *args: Any, **options: Any) -> Answer:
        answer: Answer = await self._through("publish", super().publish, *args, **options)
        return answer

    def begin_publish(self, put: Put, answered: Callable[[Answer], None], timeout_s: float = 2.0) -> None:
        """Publishes by a task, since `around` may have to wait."""
        publishing = asyncio.ensure_future(self.publish(put.subject, put.data, put.headers, timeout_s))
        publishing.add_done_callback(reporting("a publish failed"))
        publishing.add_done_callback(lambda task: answered(task.result()))

    async def request(self, *args: Any, **options: Any) -> Message:
        message: Message = await self._through("request", super().request, *args, **options)
        return message

    async def read(self, *args: Any, **options: Any) -> Page:
        page: Page = await self._through("read", super().read, *args, **options)
        return page

    async def last_message(self, *args: Any, **options: Any) -> StoredMessage | None:
        found: StoredMessage | None = await self._through(
            "last_message", super().last_message, *args, **options
        )
        return found

    async def _through(self, method: str, carry_out: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return await self.around(method, partial(carry_out, *args, **options), *args, **options)
