"""Raw connections to the HTTP API, on which a test may send any bytes."""

import asyncio

from tests.edge.api.conftest import Api

PATH = "/v1/tenants/acme/events/order.created"
PATIENCE_S = 30.0


class Raw:
    """A connection on which anything can be said."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def rest(self) -> bytes:
        """All that comes until the other side closes; a reset counts as closing."""
        async with asyncio.timeout(PATIENCE_S):
            found = b""
            try:
                while piece := await self.reader.read(1 << 16):
                    found += piece
            except ConnectionResetError:
                return found
            return found


async def connected(api: Api) -> Raw:
    host, port = api.url.removeprefix("http://").split(":")
    return Raw(*await asyncio.open_connection(host, int(port)))
