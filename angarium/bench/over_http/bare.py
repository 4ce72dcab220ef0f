"""The bare route: Litestar on uvicorn and uvloop, which answers 202 and does nothing else.

It prints its port, and ends when its standard input does.
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator

import uvicorn
from litestar import Litestar, post

BARE_PATH = "/bare"


@post(BARE_PATH, status_code=202)
async def bare() -> dict[str, int]:
    """Answer."""
    return {"seq": 1}


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve() -> None:
    """Serve until standard input ends."""
    here = socket.create_server(("127.0.0.1", 0), backlog=1024)
    route = Litestar([bare], openapi_config=None, logging_config=None)
    config = uvicorn.Config(
        route, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
        server_header=False,
    )  # fmt: skip
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve([here]))
    print(here.getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await lines.read()
    server.should_exit = True
    await serving


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve())
