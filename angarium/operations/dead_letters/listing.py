"""Lists dead letters, the newest first."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.dead_letters.pages import Progress, told, unseen
from angarium.operations.failures import operation
from streams.dead_letters.letters import DeadLetters, Letter, Selection


class Newest(Struct, frozen=True):
    """Letters, the newest first, and whether there are older ones."""

    letters: list[Letter]
    more: bool


@operation
async def newest(to: Access, wanted: Selection, limit: int, progress: Progress = unseen) -> Newest:
    """The newest letters, at most `limit` (0: all)."""
    found: list[Letter] = []
    letters = DeadLetters(to.js, to.names)
    with progress("reading") as tell:
        async for page in told(letters.newest(wanted, await letters.end()), tell):
            found += page
            if 0 < limit < len(found):
                return Newest(found[:limit], more=True)
    return Newest(found, more=False)
