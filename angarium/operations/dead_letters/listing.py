"""Lists dead letters, newest first."""

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.dead_letters.pages import Progress, no_progress, reporting
from angarium.operations.failures import operation
from streams.dead_letters.letters import DeadLetters, Letter, Selection

LOOKS_MAX = 32
"""Pages of the stream that are searched for one page of a list."""


class Newest(Struct, frozen=True):
    """Letters, the newest first, and whether there are older ones."""

    letters: list[Letter]
    more: bool


@operation
async def newest(access: Access, wanted: Selection, limit: int, progress: Progress = no_progress) -> Newest:
    """The newest letters, at most `limit` (0: all)."""
    found: list[Letter] = []
    letters = DeadLetters(access.js, access.names)
    with progress("reading") as tell:
        async for page in reporting(letters.newest(wanted, await letters.end()), tell):
            found += page
            if 0 < limit < len(found):
                return Newest(found[:limit], more=True)
    return Newest(found, more=False)


class LetterNumbers(Struct, frozen=True):
    """Positions of letters, and the one after which the others begin; None if these are all."""

    positions: tuple[int, ...]
    next: int | None


class LettersBefore(Struct, frozen=True):
    """Letters, the newest first, and the position before which the others begin; None if these are all."""

    letters: list[Letter]
    next: int | None


@operation
async def newest_before(access: Access, wanted: Selection, limit: int, before: int | None) -> LettersBefore:
    """The newest letters before that position, at most `limit`; fewer if many others are in between."""
    letters = DeadLetters(access.js, access.names)
    end = await letters.end() if before is None else before - 1
    found: list[Letter] = []
    looked = 0
    async for page in letters.newest(wanted, end):
        found += page.letters
        looked += 1
        if len(found) > limit:
            return LettersBefore(found[:limit], found[limit - 1].position)
        if looked >= LOOKS_MAX and page.unseen > 0:
            return LettersBefore(found, page.up_to)
    return LettersBefore(found, None)


@operation
async def oldest_after(access: Access, wanted: Selection, limit: int, after: int) -> LetterNumbers:
    """The oldest letters after that position, at most `limit`; fewer if many others are in between."""
    letters = DeadLetters(access.js, access.names)
    found: list[int] = []
    looked = 0
    async for page in letters.pages(wanted, await letters.end(), after):
        found += [each.position for each in page.letters]
        looked += 1
        if len(found) > limit:
            return LetterNumbers(tuple(found[:limit]), found[limit - 1])
        if looked >= LOOKS_MAX and page.unseen > 0:
            return LetterNumbers(tuple(found), page.up_to)
    return LetterNumbers(tuple(found), None)
