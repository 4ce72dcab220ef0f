"""Three nats-servers on loopback, as one cluster with replicated streams, for `dev` and tests.

Each is an `EmbeddedServer` with its own directory, and may be killed and restarted separately.
"""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from streams.nats.errors import ServerError
from streams.server.embedded import READY_TIMEOUT_S, START_POLL_S, EmbeddedServer, Routes
from streams.server.free_ports import free_ports
from streams.server.running import RunningServer

SERVER_COUNT = 3
MONITOR_TIMEOUT_S = 2.0


class EmbeddedCluster(RunningServer):
    """Three servers below one directory: `async with EmbeddedCluster(directory) as cluster: cluster.urls`.

    - `usual_ports`: for each server a port to take if it is free; by default any free ones.
    - `port`: of the first server; it must be free.
    - `max_payload`: as of `EmbeddedServer`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        usual_ports: Sequence[int] = (),
        port: int | None = None,
        max_payload: int | None = None,
    ) -> None:
        drawn = free_ports(2 * SERVER_COUNT)
        routes, usual_ports = tuple(drawn[:SERVER_COUNT]), usual_ports or drawn[SERVER_COUNT:]
        self.servers = tuple(
            EmbeddedServer(
                _directory(directory, number),
                port=port if number == 1 else None,
                usual_port=usual_port,
                max_payload=max_payload,
                routes=Routes(name=f"server-{number}", port=route, ports=routes),
            )
            for number, (route, usual_port) in enumerate(zip(routes, usual_ports, strict=True), 1)
        )

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of each server."""
        return tuple(server.url for server in self.servers)

    async def start(self) -> None:
        """Start all servers, and return when streams with a replica on each can be used and created.

        Raises ServerError if one of them does not start, or if they do not find each other.
        """
        async with AsyncExitStack() as started:
            started.push_async_callback(self.stop)
            await asyncio.gather(*(server.start() for server in self.servers))
            await self._until_complete()
            started.pop_all()

    async def stop(self) -> None:
        """Stop all servers that run, cleanly."""
        await asyncio.gather(*(server.stop() for server in self.servers))

    async def _until_complete(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not await asyncio.to_thread(_is_complete, self.servers):
            if time.monotonic() > deadline:
                raise ServerError(
                    f"the nats-servers did not become one cluster within {READY_TIMEOUT_S:.0f} s "
                    f"(see {self.servers[0].log})"
                )
            await asyncio.sleep(START_POLL_S)


def has_cluster(directory: Path) -> bool:
    """True if a cluster has kept its stores below this directory."""
    return _directory(directory, 1).exists()


def _directory(below: Path, number: int) -> Path:
    return below / f"server-{number}"


def _is_complete(servers: Sequence[EmbeddedServer]) -> bool:
    """True if a leader has heard of all others lately, and each server is up to date with every stream.

    Only the leader knows the state of its replicas.
    """
    for server in servers:
        replicas = monitored(server, "/jsz").get("meta_cluster", {}).get("replicas") or []
        if sum(replica["current"] and not replica.get("offline") for replica in replicas) == SERVER_COUNT - 1:
            return all(monitored(each, "/healthz").get("status") == "ok" for each in servers)
    return False


def monitored(server: EmbeddedServer, path: str) -> dict[str, Any]:
    """The answer of the monitoring port of a server in a cluster; empty if there was none, or an error."""
    try:
        with urllib.request.urlopen(server.monitor_url + path, timeout=MONITOR_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return {}
