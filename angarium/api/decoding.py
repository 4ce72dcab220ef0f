"""JSON bodies of requests that steer: bounded, and decoded with a pointer to each thing that is wrong."""

import re
from typing import Any, TypeVar

import msgspec
from litestar import Request

from actors.policy import DOCUMENT_MAX
from angarium.api.bodies import header, heads, read
from angarium.api.live import Live
from angarium.api.problems import Fault, Refusal, invalid
from streams.tokens import ALL_TENANTS

T = TypeVar("T")

_JSON = ("application/json", "application/merge-patch+json")
_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`\Z", re.DOTALL)
_INDEX = re.compile(r"\[(\d*)[^\]]*\]")


async def json_body(request: Request[Any, Any, Any], live: Live) -> bytes:
    """The body of a request, as it came; none is allowed. Raises `Refusal`."""
    headers = heads(request.scope["headers"])
    kind = header(headers, b"content-type").partition(";")[0].strip().lower()
    with live.room.seat(request.path_params.get("tenant", ALL_TENANTS)) as seat:
        found = await read(request.receive, headers, live.room, seat, DOCUMENT_MAX)
    if found and kind not in _JSON:
        raise Refusal(415, "unsupported", f"send it with content-type: {_JSON[0]}")
    return found


def decoded(raw: bytes, kind: type[T]) -> T:
    """The value in a body. Raises `Refusal`, with a pointer."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _PLACE.match(str(error))
        if found is None:
            raise invalid(Fault(detail=str(error))) from None
        path = _INDEX.sub(r".\1", found[2]).replace(".", "/").removesuffix("/")
        raise invalid(Fault(pointer=f"/{path}", detail=found[1])) from None
