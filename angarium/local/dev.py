"""`angarium dev`: nats-server as a child, setup, and a node in this process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NoReturn

import click
from msgspec.structs import replace

from angarium.connecting import installation, open_jetstream
from angarium.node.app import run_node
from angarium.settings import Settings
from angarium.terminal import output
from streams.installation.setup import setup
from streams.server.embedded import EmbeddedServer

LOOPBACK = ("127.0.0.0/8", "::1/128")
USUAL_NATS = "nats://127.0.0.1:4222"
HEADER_ROOM = 64 << 10
OF_ANOTHER_SERVER: dict[str, Any] = {
    "creds": None, "nkey": None, "tls_ca": None, "tls_cert": None, "tls_key": None, "replicas": 1,
}  # fmt: skip
"""What the settings say of the server in production does not hold for the embedded one."""
LASTS_S = 10.0
STARTS_MAX = 3
"""In a row, of a server that lasts less than LASTS_S each time."""


async def develop(settings: Settings, directory: Path | None, port: int | None) -> None:
    """Run until Ctrl-C. `directory` is the store of the embedded server; None: the settings name a server."""
    async with AsyncExitStack() as stack:
        server = None
        if directory is not None:
            needed = settings.max_body + HEADER_ROOM
            server = EmbeddedServer(directory, port=port, max_payload=needed if needed > 1 << 20 else None)
            await stack.enter_async_context(server)
            settings = replace(settings, nats=(server.url,), **OF_ANOTHER_SERVER)
        settings = replace(settings, allow_http=True, allow_networks=(*settings.allow_networks, *LOOPBACK))
        async with open_jetstream(settings) as js:
            await setup(js, installation(settings))
        await _run_beside(settings, server)


async def _run_beside(settings: Settings, server: EmbeddedServer | None) -> None:
    """Run the node, and keep its server running until it has ended."""
    node = asyncio.create_task(run_node(settings, ready=lambda: _tell(settings, server)))
    tasks = [node] if server is None else [node, asyncio.create_task(_keep(server))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in ended:
        task.result()


async def _keep(server: EmbeddedServer) -> NoReturn:
    """Start the server again whenever it has ended by itself, unless it does so again and again."""
    loop = asyncio.get_running_loop()
    in_a_row = 0
    while True:
        started_at = loop.time()
        await server.wait()
        in_a_row = in_a_row + 1 if loop.time() - started_at < LASTS_S else 1
        if in_a_row > STARTS_MAX:
            raise click.ClickException(f"nats-server keeps ending by itself; {server.log} tells why")
        output.note("nats-server ended by itself and is started again")
        await server.stop()
        await server.start()


def _tell(settings: Settings, server: EmbeddedServer | None) -> None:
    """Says what runs, what is allowed only here, and what to type next."""
    url = settings.nats[0]
    where = f" (store: {server.directory})" if server is not None else ""
    output.say(f"ready: NATS on {url}{where}, a node with {settings.shards} shards")
    output.say("allowed here, not elsewhere: receivers on http:// and on loopback addresses")
    output.say("in another terminal:")
    if url != USUAL_NATS:
        output.say(f"  export ANGARIUM_NATS={url}")
    output.say("  angarium listen")
    output.say("and in a third:")
    if url != USUAL_NATS:
        output.say(f"  export ANGARIUM_NATS={url}")
    output.say("  angarium receiver put acme.billing --url http://127.0.0.1:9000/ --rate 10/second")
    output.say("  angarium publish acme.billing '{\"order\": 7}' --type order.created")
    output.say("  angarium inspect acme.billing")
    output.say("Ctrl-C ends it in order.")
