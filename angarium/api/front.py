"""The short way in: what publishes one event goes to its function, and all else to Litestar.

Litestar answers these requests, too, and describes them; but finding the route, making its arguments and its
answer costs as much there as the publish itself. Pages of other origins take the long way, which knows CORS.
"""

import re

import msgspec
from litestar import Litestar
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send

from angarium.api.bodies import Headers, heads
from angarium.api.gate import Gate
from angarium.api.live import Live
from angarium.api.problems import MEDIA_TYPE, refused_by
from angarium.api.routes.publishing import Way, publish
from streams.reading.messages import TYPE_DEFAULT

_WAY = re.compile(r"/v1/tenants/([^/]+)/(?:events/([^/]+)|receivers/([^/]+)/events(?:/([^/]+))?)\Z")
_JSON = b"application/json"


class Front:
    """The ASGI application of a process."""

    def __init__(self, live: Live, gate: Gate, app: Litestar) -> None:
        self._live = live
        self._gate = gate
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] == "POST":
            way, headers = _WAY.match(scope["path"]), heads(scope["headers"])
            if way is not None and b"origin" not in headers:
                await self._publish(scope["path"], way, headers, receive, send)
                return
        await self._app(scope, receive, send)

    async def _publish(
        self, path: str, way: re.Match[str], headers: Headers, receive: Receive, send: Send
    ) -> None:
        tenant, event_type, name, direct_type = way.groups()
        try:
            who = self._gate.admitted(headers, "publish", tenant)
            to = Way(tenant, event_type or direct_type or TYPE_DEFAULT, name or "")
            accepted, told = await publish(self._live, who, to, headers, receive)
        except Exception as error:
            refused = refused_by(error, "POST", path)
            content = msgspec.json.encode(refused.problem)
            await _send(send, refused.problem.status, MEDIA_TYPE.encode(), refused.headers, content)
        else:
            await _send(send, 202, _JSON, told, msgspec.json.encode(accepted))


async def _send(send: Send, status: int, media_type: bytes, told: dict[str, str], content: bytes) -> None:
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})
