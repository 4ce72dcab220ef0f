"""The seam to the receivers: one request goes in, an answer or a failure comes out, both as values.

Every implementation keeps the same promises, and one suite of contract tests holds them to it:

- The guard has judged the address to which it connects.
- `timeout_s` spans name resolution to the end of the answer's headers. The body is read up to `BODY_MAX`,
  until the same deadline. Once the headers are complete the status alone decides: a body that is cut short
  by its limit, the deadline or a reset still makes a `Response`.
- `may_start` is asked after connect and TLS, immediately before the first byte is written and with no await
  in between: a process that was stopped may wake at any point, and may have lost its lease meanwhile.
- A connection is kept for one receiver and one egress path, and leads to an address that is allowed now. No
  byte that came before a request was written is taken for its answer: such a byte ends the connection, and if
  that was a kept one, the request is sent over a new one.
- Redirects are not followed, nothing is decompressed, cookies are not kept, proxies of the environment
  ignored.
- A kept connection that turns out dead before one byte of an answer is replaced once, within the same
  attempt.
- Nothing expected raises, and answers are bounded to the byte: `HEAD_MAX` counts interim answers as well.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from angarium.delivery.http_exchange.target import Target

HEAD_MAX = 64 * 1024
HEADERS_MAX = 256
BODY_MAX = 64 * 1024
INTERIM_MAX = 16
"""1xx answers that may precede the real one."""

EARLY = "bytes came before the request was sent"

_DETAIL_LENGTH_MAX = 200


class ProfileNames(Struct, frozen=True, gc=False):
    """The names of the profiles for the proxy and for TLS; None: no profile."""

    proxy: str | None = None
    tls: str | None = None


NO_PROFILES = ProfileNames()
"""The names for all receivers without profiles: the same object, which is compared by identity."""


class Request(Struct, frozen=True, gc=False, kw_only=True):
    """One request: a POST, or that of a handshake.

    `lines` are its headers, `name: value`, all but `host` and `content-length`, which the transport writes.
    `receiver` owns the connections that are kept for it. The repr shows the origin alone: headers hold
    credentials, and bodies are private.
    """

    receiver: str
    target: Target
    lines: tuple[bytes, ...]
    body: bytes
    timeout_s: float
    may_start: Callable[[], bool]
    profiles: ProfileNames = NO_PROFILES
    method: str = "POST"

    def __repr__(self) -> str:
        return f"Request({self.target})"


class Response(Struct, frozen=True, gc=False, kw_only=True):
    """An answer of the receiver. Header names are in lower case; the body is as sent, cut at `BODY_MAX`.

    `size`: bytes that were read of it, from the status line on.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    latency_s: float
    size: int


class FailureKind(StrEnum):
    """The stage at which an attempt ended without an answer."""

    BLOCKED = "blocked"
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL = "protocol"
    HEADERS_TOO_LARGE = "headers_too_large"
    LEASE = "lease"
    OVERLOAD = "overload"
    PROXY = "proxy"


class Failure(Struct, frozen=True, gc=False, kw_only=True):
    """A failure: no usable answer. `detail` is one line for people.

    `status` is set if the headers never ended. `LEASE` means that not a byte was sent; `OVERLOAD` that this
    node had no connection or descriptor to spare; `PROXY` that the operator's proxy led to no receiver.
    `unreached`: no connection was opened, and the network may be the reason; `silent_s`: for how long an
    address did not react to the request for one.
    """

    kind: FailureKind
    detail: str
    latency_s: float
    status: int | None = None
    unreached: bool = False
    silent_s: float = 0.0


class Transport(Protocol):
    """Makes one request per call; calls may overlap."""

    async def post(self, request: Request) -> Response | Failure: ...

    async def close(self) -> None:
        """Close every connection and return once they are gone. Attempts in flight fail with `RESET`."""
        ...


def one_line(text: object) -> str:
    """The text of a library's error as a detail: printable, on one line, bounded."""
    line = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)[:_DETAIL_LENGTH_MAX]


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """An answer's headers as a `Response` has them."""
    return tuple([(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers])


@lru_cache(maxsize=1 << 12)
def _head_of(target: Target, method: str) -> bytes:
    """The lines that each request to a target begins with. Cached, since few targets get most requests."""
    return f"{method} {target.path} HTTP/1.1\r\nhost: {target.authority}".encode("ascii")


def request_head(request: Request) -> bytes:
    """The bytes of an HTTP/1.1 request up to its body.

    Raises ValueError if a header would break out of its line. The caller has checked each value already;
    here the lines of the finished head are counted, so that no gap in that check can split a request.
    """
    has_body = request.method == "POST"  # A handshake has none, and so no length.
    last = (b"content-length: %d\r\n\r\n" % len(request.body),) if has_body else (b"\r\n",)
    head = b"\r\n".join((_head_of(request.target, request.method), *request.lines, *last))
    ends = len(request.lines) + 3 + has_body
    if head.count(b"\r") != ends or head.count(b"\n") != ends:
        raise ValueError("headers: a name or value contains CR or LF; remove it")
    return head
