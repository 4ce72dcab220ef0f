"""Creates the missing streams, buckets and consumers of an installation."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.health.sizing import StreamRoom, rooms
from streams.installation.setup import setup


class Installed(Struct, frozen=True):
    """The names of the parts that were created, and the room of the streams."""

    made: list[str]
    rooms: list[StreamRoom]


@operation
async def install(to: Access) -> Installed:
    """Create the missing parts. Raises `SetupError` if an existing part contradicts the settings."""
    made = await setup(to.js, to.of)
    return Installed(made, await rooms(to.js, to.of))
