"""Live attempts for open pages, as server-sent events; with a few streams for each session."""

from collections.abc import AsyncIterator
from typing import Annotated

from litestar import get
from litestar.params import FromPath, QueryParameter
from litestar.response.base import ASGIResponse
from litestar.response.streaming import ASGIStreamingResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from angarium.api.background.tail_streams import TailStream
from angarium.api.problems import ProblemRaised
from angarium.console.admission import needs
from angarium.console.console_state import SESSION_STREAMS_MAX, ConsoleState, InjectedConsole, InjectedSession
from angarium.console.paths import METHOD, ConsoleRequest
from angarium.console.rendering.responses import SECURITY_HEADERS
from angarium.console.sessions import ConsoleSession
from angarium.operations.live.tail import TailFilter

EVENT_STREAM = "text/event-stream"
EVENT_ID_MAX = 256
_HEADERS = SECURITY_HEADERS | {"cache-control": "no-store", "x-accel-buffering": "no"}


class _LiveEvents(ASGIStreamingResponse):
    """The answer of one stream, which is closed with it."""

    def __init__(self, console: ConsoleState, session: ConsoleSession, stream: TailStream) -> None:
        super().__init__(
            iterator=_while_it_lasts(console, session, stream), status_code=200, media_type=EVENT_STREAM,
            headers=dict(_HEADERS),
        )  # fmt: skip
        self._console = console
        self._session = session
        self._attempts = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._session.streams.discard(self._attempts)
            self._console.api.tails.close(self._attempts)


async def _while_it_lasts(
    console: ConsoleState, session: ConsoleSession, stream: TailStream
) -> AsyncIterator[bytes]:
    """The pieces of a stream; a heartbeat notices that the session is over."""
    async for piece in stream.pieces():
        yield piece
        if not console.sessions.lasts(session):
            return


@get("/live/{tenant:str}", opt=needs("read"), media_type=EVENT_STREAM)
async def follow_attempts(
    request: ConsoleRequest,
    console: InjectedConsole,
    session: InjectedSession,
    tenant: FromPath[str],
    receiver: Annotated[str | None, QueryParameter(max_length=64)] = None,
    event: Annotated[str | None, QueryParameter(max_length=EVENT_ID_MAX)] = None,
) -> ASGIApp:
    """Follow the attempts of a tenant, a receiver or an event as they are recorded."""
    if request.scope["state"][METHOD] == "HEAD":  # It has no end, and none of it would be sent.
        return ASGIResponse(media_type=EVENT_STREAM, headers=dict(_HEADERS))
    if len(session.streams) + session.opening >= SESSION_STREAMS_MAX:
        raise ProblemRaised(
            429, "rate", f"a session may have {SESSION_STREAMS_MAX} live pages at once; close one",
            retry_after="5",
        )  # fmt: skip
    about = tenant if receiver is None else f"{tenant}.{receiver}"
    wanted = TailFilter(about=about, event=event)
    session.opening += 1
    try:
        stream = await console.api.tails.open(session.token_id, session.token, wanted, None)
    finally:
        session.opening -= 1
    session.streams.add(stream)
    return _LiveEvents(console, session, stream)
