"""Makes the streams, buckets and consumers of an installation, as far as they are missing."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.health.sizing import StreamRoom, rooms
from streams.installation import setup as installing


class Installed(Struct, frozen=True):
    """The names of what was made now, and the room that the streams have."""

    made: list[str]
    rooms: list[StreamRoom]


@operation
async def install(to: Access) -> Installed:
    """Make what is missing. Raises `SetupError` if what is there contradicts the settings."""
    made = await installing.setup(to.js, to.of)
    return Installed(made, await rooms(to.js, to.of))
