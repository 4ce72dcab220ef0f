"""Middleware for ASGI applications (Starlette, FastAPI, Litestar, Quart, …).

The application gets genuine deliveries only, and finds each in `scope["angarium.delivery"]`; the body can be
read again as usual. What may take a while (a signature, a database) is done in threads of asyncio's executor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, MutableMapping
from typing import Any, Callable, TypeVar

from angarium_receiver.receiver import BODY_MAX, Answer, Receiver
from angarium_receiver.verification import Delivery

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class AngariumMiddleware:
    """Lets genuine deliveries pass to the application, and answers everything else at `path` itself.

    Requests to other paths pass unchanged. `body_max`: bytes of a body that are read; a longer one gets 413.
    """

    def __init__(
        self, app: Application, receiver: Receiver, path: str = "/", *, body_max: int = BODY_MAX
    ) -> None:
        self._app = app
        self._receiver = receiver
        self._path = path
        self._body_max = body_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI has it."""
        if scope["type"] != "http" or _path(scope).strip("/") != self._path.strip("/"):
            await self._app(scope, receive, send)
            return
        parts: list[bytes] = []
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            part = message.get("body", b"")
            length += len(part)
            if length > self._body_max:
                await _send(send, Answer(413))
                return
            parts.append(part)
            more = message.get("more_body", False)
        body = b"".join(parts)
        found = await self._received(scope["method"], _headers(scope), body)
        if isinstance(found, Answer):
            await _send(send, found)
            return
        delivery, unread, status = found, True, 500

        async def receive_again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        is_done = False
        try:
            await self._app({**scope, "angarium.delivery": delivery}, receive_again, send_and_note)
            is_done = True
        finally:
            await asyncio.shield(self._in_thread(self._receiver.done, delivery, status if is_done else 500))

    async def _received(self, method: str, headers: dict[str, str], body: bytes) -> Answer | Delivery:
        receiving = self._in_thread(self._receiver.receive, method, headers, body)
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            receiving.add_done_callback(self._release)
            raise

    def _release(self, receiving: asyncio.Future[Answer | Delivery]) -> None:
        """End the work on a delivery whose request was cut off before the application got it."""
        found = receiving.result()
        if isinstance(found, Delivery):
            self._in_thread(self._receiver.done, found, 500)

    @staticmethod
    def _in_thread(call: Callable[..., T], *values: object) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, call, *values)


def _path(scope: Scope) -> str:
    """The path below the root path, which some servers leave in front."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if path.startswith(root) else path


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _send(send: Send, answer: Answer) -> None:
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    if answer.status == 204:
        del headers["content-length"]
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
    await send({"type": "http.response.body", "body": answer.body})
