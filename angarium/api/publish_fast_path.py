"""The fast path: a request that publishes one event goes straight to its function, all others to Litestar.

Litestar could answer these requests, too, and describes them; but there, finding the route and making its
arguments and its answer costs as much as the publish itself. CORS, which is for all requests, comes before
both.
"""

import time
from typing import cast

import msgspec
from litestar import Litestar
from litestar.enums import HttpMethod, ScopeType
from litestar.types import HTTPScope, Receive, Scope, Send

from angarium.api.admission.gate import API, GATE, Gate
from angarium.api.api_state import ApiState
from angarium.api.bounded_protocol import send_answer, send_problem
from angarium.api.cors import CrossOrigin, answer_preflight, is_preflight
from angarium.api.problems import problem_for
from angarium.api.requests.headers import Headers, headers_by_name
from angarium.api.requests.query_parameters import check_parameters
from angarium.api.routes.publishing import Destination, destination_of, publish


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
                await self._publish(scope, to, headers, receive, send)
                return
            if method == "HEAD":  # The answer to GET, of which the server sends no body.
                scope = cast(HTTPScope, {**scope, "method": HttpMethod.GET})
            scope["state"] = {API: self._api, GATE: self._gate}
            send = self._api.requests.counting(send, method)
        await self._app(scope, receive, send)

    async def _publish(
        self, scope: HTTPScope, destination: Destination, headers: Headers, receive: Receive, send: Send
    ) -> None:
        began_at = time.monotonic()
        try:
            who = self._gate.admitted(headers, "publish", destination.tenant)
            check_parameters(scope["query_string"])
            accepted, rate_headers = await publish(self._api, who, destination, headers, receive)
        except Exception as error:
            problem = problem_for(error, "POST", scope["path"])
            self._api.requests.add("publish", problem.problem.status, began_at)
            await send_problem(send, problem)
        else:
            self._api.requests.add("publish", 202, began_at)
            await send_answer(send, 202, "application/json", rate_headers, msgspec.json.encode(accepted))
