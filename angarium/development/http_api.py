"""The HTTP API of `angarium dev`, with the port and the token of the last run."""

import logging
import socket
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError
from angarium.access import Access
from angarium.development.directory import DevDirectory
from angarium.operations.failures import NotDone
from angarium.operations.tokens.create import NewToken, create
from angarium.operations.tokens.secret import parse_token, proves
from angarium.settings import Settings
from streams.buckets.api_tokens import ALL_TENANTS, TokenStore
from streams.nats.errors import ConnectError

HOST = "127.0.0.1"
NOTE = "angarium dev"

log = logging.getLogger(__name__)


class HttpApi(Struct, frozen=True):
    """The API of a directory: the socket that it is to serve, and a token for everything.

    `wanted` is the port that it asked for, which may have been taken.
    """

    here: socket.socket
    url: str
    port: int
    wanted: int
    token: str

    def __repr__(self) -> str:
        return f"HttpApi({self.url!r}, …)"


async def prepared(access: Access, kept: DevDirectory, port: int | None) -> HttpApi | None:
    """Get the port and a token; None if the API is not installed. Raises AngariumError."""
    try:
        from angarium.api import server
    except ModuleNotFoundError as error:
        log.error("api.stopped", extra={"why": f"{error}: install the extra api (see README)"})
        return None
    wanted = port or kept.last_api_port
    try:
        here = server.bind_socket(HOST, wanted)
    except server.ServeError:
        if port is not None:
            raise
        here = server.bind_socket(HOST, 0)
    bound_port: int = here.getsockname()[1]
    token = await _token(access, kept)
    kept.serves_api(bound_port)
    return HttpApi(here, server.url(here), bound_port, wanted, token)


async def serve(settings: Settings, api: HttpApi, ready: Callable[[], None]) -> None:
    """Serve until cancelled. A failure stops nothing else; `ready` is called then, too."""
    from angarium.api import server
    from angarium.console.app import Console

    reached = settings if settings.console_url else replace(settings, console_url=api.url)
    try:
        await server.serve(reached, api.here, lambda _: ready(), second=True, around=Console)
    except (AngariumError, ConnectError) as error:
        log.error("api.stopped", extra={"why": str(error)})
        ready()


async def _token(access: Access, kept: DevDirectory) -> str:
    """The token of the last run if the store still has it, otherwise a new one. Raises AngariumError."""
    text = kept.token
    secret = parse_token(text)
    if secret is not None and proves(secret, await TokenStore(access.js, access.names).find(secret.id)):
        return text
    created = await create(
        access, NewToken(tenant=ALL_TENANTS, scopes=("publish", "read", "manage", "operate"), note=NOTE)
    )
    if isinstance(created, NotDone):
        raise _NoToken(created.text)
    kept.keep_token(created.text)
    return created.text


class _NoToken(AngariumError):
    """There is no token, and none can be made."""
