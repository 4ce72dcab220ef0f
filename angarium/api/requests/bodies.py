"""Bodies of requests: read in pieces, bounded in size and time, and decoded with a pointer to each fault."""

import asyncio
import re
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.types import Receive

from actors.allowed_values import conversion_problem
from actors.configuration.parsing import DOCUMENT_MAX
from angarium.api.problems import Fault, ProblemRaised, invalid, not_json
from angarium.api.requests.headers import Headers, header, headers_by_name
from angarium.api.requests.request_limits import AdmittedRequest, RequestLimits
from streams.buckets.api_tokens import ALL_TENANTS

T = TypeVar("T")

BODY_TIMEOUT_S = 10.0
SLOWEST_BYTES_PER_S = 64 << 10
"""Slowest accepted transfer: a body has 10 s, and more if it is so long that a slow line needs it."""

_JSON = ("application/json", "application/merge-patch+json")
_INDEX = re.compile(r"\[(\d*)[^\]]*\]")


async def read_body(
    receive: Receive, headers: Headers, limits: RequestLimits, request: AdmittedRequest, limit: int
) -> bytes:
    """The body of a request, of at most `limit` bytes. Raises `ProblemRaised`."""
    if header(headers, b"content-encoding").lower() not in ("", "identity"):
        raise ProblemRaised(
            415, "unsupported", "bodies with a content-encoding are not accepted; send it without"
        )
    length = header(headers, b"content-length")
    if length and int(length) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S + limit / SLOWEST_BYTES_PER_S):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise ProblemRaised(400, "not-http", "the client disconnected")
                if piece := message["body"]:
                    size += len(piece)
                    if size > limit:
                        raise _too_large(limit)
                    limits.reserve(request, len(piece))
                    pieces.append(piece)
                if not message["more_body"]:
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        raise ProblemRaised(408, "timeout", "the body arrived too slowly") from None


def _too_large(limit: int) -> ProblemRaised:
    return ProblemRaised(
        413, "too-large", f"the body may have at most {limit} bytes; send less, or a link to it"
    )


async def json_body(request: Request[Any, Any, Any], limits: RequestLimits) -> bytes:
    """The body of a request as it came; it may be empty. Raises `ProblemRaised`."""
    headers = headers_by_name(request.scope["headers"])
    media_type = header(headers, b"content-type").partition(";")[0].strip().lower()
    with limits.admit(request.path_params.get("tenant", ALL_TENANTS)) as admitted:
        body = await read_body(request.receive, headers, limits, admitted, DOCUMENT_MAX)
    if body and media_type not in _JSON:
        raise ProblemRaised(415, "unsupported", f"send it with content-type: {_JSON[0]}")
    return body


_syntax = msgspec.json.Decoder(msgspec.Raw)


def check_json(body: bytes) -> None:
    """Raises `ProblemRaised` if a body is not JSON at all; reads it without making anything of it."""
    try:
        _syntax.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(error) from None


def decoded(body: bytes, kind: type[T]) -> T:
    """The value in a body. Raises `ProblemRaised`, with a pointer."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        check_json(body)
        if not isinstance(error, msgspec.ValidationError):
            raise invalid(Fault(detail=f"not valid JSON ({error})")) from None
        path, detail = conversion_problem(error, kind)
        raise invalid(Fault(pointer=json_pointer(path), detail=detail)) from None


def json_pointer(path: str) -> str:
    """The JSON pointer of a path such as `.receivers[0].name`; the root is empty."""
    return _INDEX.sub(r".\1", path).replace(".", "/").removesuffix("/")
