"""Cross-origin requests: web pages of the origins that are named in the settings may use the API.

Other origins get the same answers without CORS headers, so browsers do not show them.
"""

from collections.abc import Iterable
from typing import Any

from litestar.types import Message, Send

from angarium.api.requests.headers import Headers

_METHODS = b"DELETE, GET, PATCH, POST, PUT"
_EXPOSED = b"Allow, ETag, Location, RateLimit, RateLimit-Policy, Retry-After, WWW-Authenticate"
"""Headers of answers that a page may read, besides those that every page may."""
_MAX_AGE_S = b"600"
_ANY_HEADERS = b"*, Authorization"
"""`*` does not include Authorization (Fetch standard)."""


class CrossOrigin:
    """The rules for web pages. Origins are as browsers write them, https://app.example.com; `*` names all."""

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._all = b"*" in self._origins

    def allows(self, headers: Headers) -> bool:
        """Return whether a request comes from a page that may use the API."""
        return b"origin" in headers and (self._all or headers[b"origin"] in self._origins)

    def answering(self, send: Send, headers: Headers) -> Send:
        """Wrap `send` so that the response has CORS headers."""
        extra = [
            (b"access-control-allow-origin", headers[b"origin"]),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        return sending


def is_preflight(method: str, headers: Headers) -> bool:
    """Return whether this is a preflight request."""
    return method == "OPTIONS" and b"access-control-request-method" in headers


async def answer_preflight(send: Send) -> None:
    """Answer a preflight request."""
    headers: list[tuple[bytes, bytes]] = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", _ANY_HEADERS),
        (b"access-control-max-age", _MAX_AGE_S),
    ]
    start: Any = {"type": "http.response.start", "status": 204, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b"", "more_body": False})
