"""Bodies of requests: read in pieces, never more than may be, and never for longer than it should take.

What all requests hold together is bounded as well: when NATS is slow or clients are many, the next one is
told to come back, instead of being remembered.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from litestar.types import Receive
from msgspec import Struct

from angarium.api.problems import Refusal, unavailable

BODY_TIMEOUT_S = 10.0
SLOWEST_BYTES_PER_S = 64 << 10
"""A body has 10 s, and more if it is so long that a slow line needs it."""
IN_FLIGHT_MAX = 1024
"""Requests that are being read or stored; JetStream acknowledges as many in 0.1 s."""
HELD_MAX = 64 << 20
"""Bytes of bodies that are held for them."""
BODY_SHARES = 4
"""A tenant has a quarter of either at most: one with many slow connections keeps out no other."""

Headers = dict[bytes, bytes]
SEVERAL = b"\0several"
"""In the place of a header that comes twice with different values."""


class Seat(Struct):
    """The place of one request in the room, and what its tenant's requests hold together."""

    share: "Share"
    held: int = 0


class Share(Struct):
    """The part of the room that one tenant has taken."""

    requests: int = 0
    held: int = 0


class Room:
    """The room for requests in flight, of which no tenant has more than its share."""

    def __init__(self, requests_max: int = IN_FLIGHT_MAX, bytes_max: int = HELD_MAX) -> None:
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._shares: dict[str, Share] = {}
        self.requests = 0
        self.held = 0

    @contextmanager
    def seat(self, tenant: str) -> Iterator[Seat]:
        """Have a place while the block runs. Raises `Refusal` where there is none."""
        share = self._shares.get(tenant) or Share()
        if self.requests >= self._requests_max or share.requests >= self._requests_max // BODY_SHARES:
            raise unavailable("too many requests are in flight here; send it again, more slowly")
        self._shares[tenant] = share
        seat = Seat(share)
        self.requests += 1
        share.requests += 1
        try:
            yield seat
        finally:
            self.requests -= 1
            self.held -= seat.held
            share.requests -= 1
            share.held -= seat.held
            if not share.requests:
                del self._shares[tenant]

    def hold(self, seat: Seat, size: int) -> None:
        """Let a request hold so many bytes more. Raises `Refusal` where that is too much."""
        share = seat.share
        if self.held + size > self._bytes_max or share.held + size > self._bytes_max // BODY_SHARES:
            raise unavailable("the requests in flight here hold too much; send it again, more slowly")
        seat.held += size
        share.held += size
        self.held += size


def heads(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers by their names, which are in lower case."""
    found: Headers = {}
    for name, value in headers:
        known = found.get(name)
        if known is None:
            found[name] = value
        elif known != value:
            found[name] = SEVERAL
    return found


def header(headers: Headers, name: bytes) -> str:
    """The value of a header, or nothing. Raises `Refusal` where it comes twice and differs."""
    value = headers.get(name)
    if value is None:
        return ""
    if value is SEVERAL:
        raise Refusal(400, "not-http", f"the header {name.decode()} comes several times; send one")
    return value.decode("latin-1").strip()


async def read(receive: Receive, headers: Headers, room: Room, seat: Seat, limit: int) -> bytes:
    """The body of a request, of at most `limit` bytes. Raises `Refusal`."""
    if header(headers, b"content-encoding").lower() not in ("", "identity"):
        raise Refusal(415, "unsupported", "a content-encoding is not undone and not passed on; send it plain")
    said = header(headers, b"content-length")
    if said and int(said) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S + limit / SLOWEST_BYTES_PER_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refusal(400, "not-http", "the client went away")
                if piece := message["body"]:
                    size += len(piece)
                    if size > limit:
                        raise _too_large(limit)
                    room.hold(seat, len(piece))
                    pieces.append(piece)
                if not message["more_body"]:
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        raise Refusal(408, "timeout", "the body came too slowly") from None


def _too_large(limit: int) -> Refusal:
    return Refusal(413, "too-large", f"the body may have {limit} bytes; send less, or a link to it")
