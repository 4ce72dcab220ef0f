"""Lists dead letters, newest first."""

from msgspec import Struct

from angarium.access import Access
from angarium.operations.dead_letters.pages import Progress, no_progress
from angarium.operations.failures import operation
from streams.dead_letters.letters import READ_BYTES_MAX, DeadLetters, LetterFilter, ListedLetter

PAGES_READ_MAX = 32
"""Pages of the stream that are searched for one page of a list."""
PAGES_BYTES_MAX = 16 << 20
"""Bytes that are read for one page of a list, so a page may be short."""


class NewestLetters(Struct, frozen=True):
    """Letters, the newest first, and whether there are older ones."""

    letters: list[ListedLetter]
    more: bool


@operation
async def newest(
    access: Access, wanted: LetterFilter, limit: int, progress: Progress = no_progress
) -> NewestLetters:
    """The newest letters, at most `limit` (0: all)."""
    found: list[ListedLetter] = []
    letters = DeadLetters(access.js, access.names)
    with progress("reading") as on_progress:
        seen = 0
        async for page in letters.newest(wanted, await letters.end()):
            found += page.letters
            seen += page.seen
            on_progress(seen, seen + page.unseen)
            if 0 < limit < len(found):
                return NewestLetters(found[:limit], more=True)
    return NewestLetters(found, more=False)


class LetterNumbers(Struct, frozen=True):
    """Positions of letters, and the one after which the others begin; None if these are all."""

    positions: tuple[int, ...]
    next: int | None


class LettersBefore(Struct, frozen=True):
    """Letters, the newest first, and the position before which the others begin; None if these are all."""

    letters: list[ListedLetter]
    next: int | None


@operation
async def newest_before(
    access: Access, wanted: LetterFilter, limit: int, before: int | None
) -> LettersBefore:
    """The newest letters before that position, at most `limit`; fewer if much would have to be read."""
    letters = DeadLetters(access.js, access.names)
    end = await letters.end() if before is None else before - 1
    found: list[ListedLetter] = []
    pages = size = 0
    async for page in letters.newest(wanted, end):
        found += page.letters
        pages, size = pages + 1, size + page.size
        if len(found) > limit:
            return LettersBefore(found[:limit], found[limit - 1].position)
        if (pages >= PAGES_READ_MAX or size >= PAGES_BYTES_MAX) and page.unseen > 0:
            return LettersBefore(found, page.up_to)
    return LettersBefore(found, None)


@operation
async def oldest_after(access: Access, wanted: LetterFilter, limit: int, after: int) -> LetterNumbers:
    """The oldest letters after that position, at most `limit`; fewer if many others are in between."""
    letters = DeadLetters(access.js, access.names)
    found: list[int] = []
    pages = 0
    async for page in letters.pages(wanted, await letters.end(), after, READ_BYTES_MAX):
        found += [each.position for each in page.letters]
        pages += 1
        if len(found) > limit:
            return LetterNumbers(tuple(found[:limit]), found[limit - 1])
        if pages >= PAGES_READ_MAX and page.unseen > 0:
            return LetterNumbers(tuple(found), page.up_to)
    return LetterNumbers(tuple(found), None)
