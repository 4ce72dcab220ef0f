"""Creates the missing streams and buckets of an installation, and upgrades an old one."""

from msgspec import Struct

from angarium.access import Access
from angarium.operations.failures import operation
from angarium.operations.installation.sizing import StreamRoom, rooms
from streams.installation.setup import setup
from streams.repair.upgrade import upgrade


class InstalledParts(Struct, frozen=True):
    """The names of the parts that were created or upgraded, and the room of the streams."""

    made: list[str]
    rooms: list[StreamRoom]


@operation
async def install(access: Access) -> InstalledParts:
    """Create the missing parts, after an upgrade if there is something old.

    Raises `SetupError` if an existing part contradicts the settings, or if an old node is alive.
    """
    made = await upgrade(access.js, access.installation) + await setup(access.js, access.installation)
    return InstalledParts(made, await rooms(access.js, access.installation))
