"""The fast path: a request that publishes one event goes straight to its function, all others to Litestar.

Litestar answers these requests, too, and describes them; but finding the route, making its arguments and its
answer costs as much there as the publish itself. What holds for all requests, CORS, stands before both.
"""

from typing import cast

import msgspec
from litestar import Litestar
from litestar.enums import HttpMethod, ScopeType
from litestar.types import HTTPScope, Receive, Scope, Send

from angarium.api.api_state import ApiState
from angarium.api.cors import CrossOrigin, answer_preflight, is_preflight
from angarium.api.gate import Gate
from angarium.api.problems import MEDIA_TYPE, refused_by
from angarium.api.request_headers import Headers, headers_by_name
from angarium.api.routes.publishing import Destination, destination_of, publish

_JSON = b"application/json"


class PublishFastPath:
    """The ASGI application of a process."""

    def __init__(self, api: ApiState, gate: Gate, app: Litestar) -> None:
        self._api = api
        self._gate = gate
        self._app = app
        self._cross_origin = CrossOrigin(api.access.settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            method, headers = scope["method"], headers_by_name(scope["headers"])
            if self._cross_origin.allows(headers):
                send = self._cross_origin.answering(send, headers)
                if is_preflight(method, headers):
                    await answer_preflight(send)
                    return
            if method == "POST" and (to := destination_of(scope["path"])) is not None:
                await self._publish(scope["path"], to, headers, receive, send)
                return
            if method == "HEAD":  # The answer to GET, of which the server sends no body.
                scope = cast(HTTPScope, {**scope, "method": HttpMethod.GET})
        await self._app(scope, receive, send)

    async def _publish(
        self, path: str, to: Destination, headers: Headers, receive: Receive, send: Send
    ) -> None:
        try:
            who = self._gate.admitted(headers, "publish", to.tenant)
            accepted, rate_headers = await publish(self._api, who, to, headers, receive)
        except Exception as error:
            refused = refused_by(error, "POST", path)
            content = msgspec.json.encode(refused.problem)
            await _send(send, refused.problem.status, MEDIA_TYPE.encode(), refused.headers, content)
        else:
            await _send(send, 202, _JSON, rate_headers, msgspec.json.encode(accepted))


async def _send(send: Send, status: int, media_type: bytes, extra: dict[str, str], content: bytes) -> None:
    headers = [(b"content-type", media_type), (b"content-length", b"%d" % len(content))]
    headers += [(name.encode(), value.encode()) for name, value in extra.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})
