"""The server: a socket of our own with uvicorn on it, and a clean shutdown."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import uvicorn
from litestar.types import ASGIApp

from actors.errors import AngariumError
from angarium.api.api_state import ApiState, open_api_state
from angarium.api.app import application
from angarium.api.bounded_protocol import BoundedProtocol
from angarium.api.request_metrics import ApiMetrics
from angarium.http_server import why_not_bound
from angarium.settings import Settings
from angarium.telemetry.metrics.serving import serving_metrics

STOP_TIMEOUT_S = 5
"""Time for requests in flight when the process is told to stop."""
LISTEN_BACKLOG = 1024
KEEP_ALIVE_S = 75
"""Idle time of a connection: longer than in load balancers, so that they close it first."""

Around = Callable[[ApiState, ASGIApp], ASGIApp]
"""Serves some paths itself, over the state of the process, and passes all other requests on."""

log = logging.getLogger(__name__)


def nothing_around(api: ApiState, app: ASGIApp) -> ASGIApp:
    """Serve the API alone."""
    return app


class ServeError(AngariumError):
    """The address cannot be used; the message says why and what to do."""


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket on that address; port 0 is any free one. Raises `ServeError`."""
    try:
        kind, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Only to the connections of a socket that is said to be TCP, asyncio gives TCP_NODELAY.
        found = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(place)
        except OSError:
            found.close()
            raise
    except OSError as error:
        why = f"cannot listen on {host} port {port} ({why_not_bound(error)})"
        raise ServeError(f"{why}: choose another --host or --port") from None
    return found


def url(sock: socket.socket) -> str:
    """The URL of the server on that socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    settings: Settings,
    here: socket.socket,
    ready: Callable[[str], None],
    *,
    second: bool = False,
    around: Around = nothing_around,
) -> None:
    """Serve until cancelled; requests in flight end first. `ready` gets the URL.

    Raises `ConnectError`, `ApiError`, `MonitorFailed` and `SettingsError`.
    """
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(served(settings, here, second=second, around=around))
        if not second:  # A process that does more than this, such as `angarium dev`, is watched as a node.
            metrics = ApiMetrics(api.requests, api.access.js)
            instance = f"{settings.node}-api"

            def unready() -> str:
                return "" if api.is_ready else "NATS cannot be reached"

            await stack.enter_async_context(serving_metrics(settings.api_monitor, instance, metrics, unready))
        log.log(logging.DEBUG if second else logging.INFO, "api.ready", extra={"url": url(here)})
        ready(url(here))
        await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def served(
    settings: Settings, here: socket.socket, *, second: bool = False, around: Around = nothing_around
) -> AsyncIterator[ApiState]:
    """Serve on that socket while the block runs."""
    with here:
        async with open_api_state(settings, second=second) as api:
            config = uvicorn.Config(
                around(api, application(api)), http=BoundedProtocol, ws="none", lifespan="off",
                log_config=None, access_log=False, server_header=False, proxy_headers=False,
                backlog=LISTEN_BACKLOG, timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=STOP_TIMEOUT_S,
            )  # fmt: skip
            async with _running(_Server(config), here):
                try:
                    yield api
                finally:
                    api.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, and with an event for when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.serving.set()


@asynccontextmanager
async def _running(server: _Server, here: socket.socket) -> AsyncIterator[None]:
    """Serve while the block runs."""
    task = asyncio.ensure_future(server.serve([here]))
    try:
        await server.serving.wait()
        yield
    finally:
        server.should_exit = True
        await task
