"""Middleware for WSGI applications (Flask, Django, Bottle, …).

The application gets genuine deliveries only, and finds each in `environ["angarium.delivery"]`; the body can
be read again from `wsgi.input`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Callable

from angarium_receiver.receiver import BODY_MAX, Answer, Receiver
from angarium_receiver.verification import Delivery

_LENGTH = re.compile(r"[0-9]{1,19}\Z")

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


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

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request, as WSGI has it (PEP 3333)."""
        if environ.get("PATH_INFO", "").strip("/") != self._path.strip("/"):
            return self._app(environ, start_response)
        length = environ.get("CONTENT_LENGTH") or ("" if environ.get("wsgi.input_terminated") else "0")
        if length and not _LENGTH.match(length):
            return _start(start_response, Answer(400))
        if length and int(length) > self._body_max:
            return _start(start_response, Answer(413))
        body = environ["wsgi.input"].read(int(length or self._body_max + 1))
        if len(body) > self._body_max:
            return _start(start_response, Answer(413))
        found = self._receiver.receive(environ["REQUEST_METHOD"], _headers(environ), body)
        if isinstance(found, Answer):
            return _start(start_response, found)
        delivery = found
        environ = {**environ, "wsgi.input": io.BytesIO(body), "angarium.delivery": delivery}

        noted = _Noted(self._receiver, delivery)

        def start_and_note(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            noted.status = int(status[:3])
            return start_response(status, headers, *more)

        try:
            noted.parts = self._app(environ, start_and_note)
        except BaseException:
            self._receiver.done(delivery, 500)
            raise
        return noted


class _Noted:
    """An application's answer; the delivery is done with its status once it was made without an error."""

    def __init__(self, receiver: Receiver, delivery: Delivery) -> None:
        self._receiver, self._delivery = receiver, delivery
        self.status, self._is_done = 500, False
        self.parts: Iterable[bytes] = ()

    def __iter__(self) -> Iterator[bytes]:
        yield from self.parts
        self._is_done = True
        self._receiver.done(self._delivery, self.status)

    def close(self) -> None:
        """Called by every server, also if the application failed (PEP 3333)."""
        try:
            if close := getattr(self.parts, "close", None):
                close()
        finally:
            if not self._is_done:
                self._receiver.done(self._delivery, 500)


def _headers(environ: Environ) -> dict[str, str]:
    found = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    return {**found, "content-type": environ.get("CONTENT_TYPE", "")}


def _start(start_response: StartResponse, answer: Answer) -> Iterable[bytes]:
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    if answer.status == 204:
        del headers["content-length"]
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", list(headers.items()))
    return [answer.body]
