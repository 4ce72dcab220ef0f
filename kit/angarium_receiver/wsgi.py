"""Middleware for WSGI applications (Flask, Django, Bottle, …).

The application gets genuine deliveries only, and finds each in `environ["angarium.delivery"]`; the body can
be read again from `wsgi.input`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Callable

from angarium_receiver.receiver import BODY_MAX, Answer, Receiver

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
        if environ.get("PATH_INFO", "") != self._path:
            return self._app(environ, start_response)
        length = environ.get("CONTENT_LENGTH") or "0"
        if not length.isdigit() or int(length) > self._body_max:
            return _start(start_response, Answer(413 if length.isdigit() else 400))
        body = environ["wsgi.input"].read(int(length))
        found = self._receiver.receive(environ["REQUEST_METHOD"], _headers(environ), body)
        if isinstance(found, Answer):
            return _start(start_response, found)
        delivery = found
        environ = {**environ, "wsgi.input": io.BytesIO(body), "angarium.delivery": delivery}

        def start_and_note(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            self._receiver.done(delivery, int(status[:3]))
            return start_response(status, headers, *more)

        return self._app(environ, start_and_note)


def _headers(environ: Environ) -> dict[str, str]:
    found = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    return {**found, "content-type": environ.get("CONTENT_TYPE", "")}


def _start(start_response: StartResponse, answer: Answer) -> Iterable[bytes]:
    headers = {"content-length": str(len(answer.body)), **answer.headers}
    if answer.status == 204:
        del headers["content-length"]
    start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", list(headers.items()))
    return [answer.body]
