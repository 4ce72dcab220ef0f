"""Runs `angarium dev`: one nats-server or three as children; setup, a node and a ledger in this process."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from actors.errors import AngariumError
from angarium.access import Access, installation, open_jetstream
from angarium.development import http_api
from angarium.development.directory import DevDirectory, hold_directory
from angarium.development.http_api import HttpApi
from angarium.node.app import run_node
from angarium.settings import Settings
from streams.fleet.lease import LEASE_MARGIN_S
from streams.installation.setup import setup
from streams.nats.errors import ConnectError
from streams.nats.retry import retry_for_command
from streams.repair.upgrade import upgrade
from streams.server.cluster import SERVER_COUNT, EmbeddedCluster, has_cluster
from streams.server.embedded import EmbeddedServer

LOOPBACK = ("127.0.0.0/8", "::1/128")
HEADER_ROOM = 64 << 10
WITHOUT_ANOTHER_SERVER: dict[str, Any] = {
    "creds": None, "nkey": None, "tls_ca": None, "tls_cert": None, "tls_key": None,
}  # fmt: skip
"""Settings about the server in production, which do not apply to the embedded ones."""
CLAIMING_USUAL_S = 2.5
"""Time to see the last heartbeat of the dead node, and to claim its 64 shards: 0.5 to 2.7 s were measured."""
SHORT_LIFE_S = 10.0
SHORT_LIVES_MAX = 3
"""Starts in a row of a server that lives less than SHORT_LIFE_S each time."""

log = logging.getLogger(__name__)


class DevError(AngariumError):
    """`angarium dev` cannot continue."""


class Starting(Struct, frozen=True):
    """nats-server is started on the store in this directory; a large one takes seconds."""

    directory: Path
    servers: int


class Serving(Struct, frozen=True):
    """nats-server runs. `wanted` is the port that it asked for, which may have been taken."""

    url: str
    port: int
    wanted: int
    pid_file: Path


class Claiming(Struct, frozen=True):
    """The node claims its shards; after a crash it first waits until the lease of the dead one is over."""

    shards: int
    after_crash_s: float


class Ready(Struct, frozen=True):
    """Events are delivered. `directory` is None if the server is not ours; then there is no `api` either."""

    urls: tuple[str, ...]
    shards: int
    directory: Path | None
    api: HttpApi | None = None


Step = Starting | Serving | Claiming | Ready
OnStep = Callable[[Step], None]


async def develop(
    settings: Settings, directory: Path | None, port: int | None, api_port: int | None, on_step: OnStep
) -> None:
    """Run until Ctrl-C. `directory` holds the stores of our servers; None: the settings name other servers.

    There are as many of ours as the settings ask for replicas. `on_step` is called when a step begins. Raises
    `DirectoryInUse`, `DevError`, and the errors of server and setup.
    """
    async with AsyncExitStack() as stack:
        servers, kept, api = tuple[EmbeddedServer, ...](), None, None
        if directory is not None:
            kept = stack.enter_context(hold_directory(directory))
            servers = await _start_servers(stack, settings, kept, port, on_step)
            settings = replace(settings, nats=tuple(each.url for each in servers), **WITHOUT_ANOTHER_SERVER)
        settings = replace(
            settings, workers=1, allow_http=True, allow_networks=(*settings.allow_networks, *LOOPBACK)
        )
        async with open_jetstream(settings) as js:
            await retry_for_command(upgrade, js, installation(settings))
            await retry_for_command(setup, js, installation(settings))
            if kept is not None:
                api = await http_api.prepared(Access(js, settings), kept, api_port)
        on_step(Claiming(settings.shards, settings.ttl_s + LEASE_MARGIN_S + CLAIMING_USUAL_S))
        await _run_all(settings, servers, None if kept is None else kept.path, api, on_step)


async def _start_servers(
    stack: AsyncExitStack, settings: Settings, kept: DevDirectory, port: int | None, on_step: OnStep
) -> tuple[EmbeddedServer, ...]:
    """Run one nats-server or three in the directory, on the ports of the last time if those are free."""
    needed = settings.max_body + HEADER_ROOM
    max_payload = needed if needed > 1 << 20 else None
    count = settings.replicas
    _check_store(kept.path, count)
    wanted = kept.wanted_ports(port, count)
    on_step(Starting(kept.path, count))
    if count == 1:
        server = EmbeddedServer(kept.path, port=port, usual_port=wanted[0], max_payload=max_payload)
        servers: tuple[EmbeddedServer, ...] = (await stack.enter_async_context(server),)
    else:
        cluster = EmbeddedCluster(kept.path, usual_ports=wanted, port=port, max_payload=max_payload)
        servers = (await stack.enter_async_context(cluster)).servers
    kept.serves([(each.port, each.url) for each in servers])
    for each, wanted_port in zip(servers, wanted, strict=True):
        on_step(Serving(each.url, each.port, wanted_port, each.pid_file))
    return servers


def _check_store(directory: Path, count: int) -> None:
    """Raise `DevError` if the directory has the store of another number of servers."""
    there = servers_in(directory)
    if there not in (None, count):
        raise DevError(
            f"{directory} has the store of {there} nats-server{'s' if there == 3 else ''}: "
            f"leave out --servers {count}, or choose another --dir"
        )


def servers_in(directory: Path) -> int | None:
    """The number of nats-servers whose stores are in the directory; None: there is no store."""
    if has_cluster(directory):
        return SERVER_COUNT
    return 1 if (directory / "jetstream").exists() else None


async def _run_all(
    settings: Settings,
    servers: tuple[EmbeddedServer, ...],
    directory: Path | None,
    api: HttpApi | None,
    on_step: OnStep,
) -> None:
    """Run the node, and keep our servers running until it has ended."""
    awaited = {"node"} | ({"api"} if api is not None else set())

    def ready(which: str) -> None:
        awaited.discard(which)
        if not awaited:
            on_step(Ready(settings.nats, settings.shards, directory, api))

    node = asyncio.create_task(run_node(settings, ready=lambda: ready("node")))
    tasks = [node, *(asyncio.create_task(keep(each, logs_restarts=len(servers) > 1)) for each in servers)]
    background = [asyncio.create_task(_follow(settings))] if servers else []
    if api is not None:
        background.append(asyncio.create_task(http_api.serve(settings, api, lambda: ready("api"))))
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in tasks if task.done()]
    for task in (*tasks, *background):
        task.cancel()
    await asyncio.wait([*tasks, *background])
    for task in ended:
        task.result()


async def _follow(settings: Settings) -> None:
    """Keep a ledger. If it fails, everything else continues, since it can be rebuilt."""
    try:
        from angarium.ledger.follow import follow

        await follow(settings, second=True)
    except (AngariumError, ConnectError) as error:
        log.error("ledger.stopped", extra={"why": str(error)})


async def keep(server: EmbeddedServer, *, logs_restarts: bool) -> NoReturn:
    """Start the server again whenever it has ended by itself, unless that happens again and again.

    `logs_restarts`: log that it ended, and that it serves again. If it is the only one, the node does that
    with `nats.lost` and `nats.back`; of several, a node is connected to one only.
    """
    level = logging.INFO if logs_restarts else logging.DEBUG
    loop = asyncio.get_running_loop()
    in_a_row = 0
    while True:
        started_at = loop.time()
        await server.wait()
        in_a_row = in_a_row + 1 if loop.time() - started_at < SHORT_LIFE_S else 1
        if in_a_row > SHORT_LIVES_MAX:
            raise DevError(f"nats-server keeps exiting by itself; {server.log} says why")
        ended_at, fields = loop.time(), {"server": server.directory.name, "url": server.url}
        log.log(level, "server.ended", extra=fields | {"log_file": str(server.log)})
        await server.stop()
        await server.start()
        log.log(level, "server.back", extra=fields | {"after_s": round(loop.time() - ended_at, 1)})
