"""What `angarium dev` does: nats-server as a child, setup, and a node in this process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import click
from msgspec.structs import replace

from angarium.app import run_node
from angarium.connecting import installation, open_jetstream
from angarium.console import output
from angarium.settings import Settings
from streams.embedded import EmbeddedServer
from streams.setup import setup

LOOPBACK = ("127.0.0.0/8", "::1/128")
USUAL_NATS = "nats://127.0.0.1:4222"
HEADER_ROOM = 64 << 10


async def develop(settings: Settings, directory: Path | None, port: int | None) -> None:
    """Run until Ctrl-C. `directory` is the store of the embedded server; None: the settings name a server."""
    async with AsyncExitStack() as stack:
        server = None
        if directory is not None:
            needed = settings.max_body + HEADER_ROOM
            server = EmbeddedServer(directory, port=port, max_payload=needed if needed > 1 << 20 else None)
            await stack.enter_async_context(server)
            settings = replace(settings, nats=(server.url,))
        settings = replace(settings, allow_http=True, allow_networks=(*settings.allow_networks, *LOOPBACK))
        async with open_jetstream(settings) as js:
            await setup(js, installation(settings))
        await _run_beside(settings, server)


async def _run_beside(settings: Settings, server: EmbeddedServer | None) -> None:
    """Run the node as long as its server runs."""
    node = asyncio.create_task(run_node(settings, ready=lambda: _tell(settings, server)))
    if server is None:
        return await node
    ended = asyncio.create_task(server.wait())
    await asyncio.wait({node, ended}, return_when=asyncio.FIRST_COMPLETED)
    if node.done():
        ended.cancel()
        return node.result()
    node.cancel()
    await asyncio.wait({node})
    raise click.ClickException(f"nats-server ended by itself; {server.log} tells why")


def _tell(settings: Settings, server: EmbeddedServer | None) -> None:
    """What runs, what is allowed here that is not elsewhere, and what to type next."""
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
