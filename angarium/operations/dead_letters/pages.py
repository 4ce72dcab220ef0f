"""The dead letters of an operation, page by page, and its progress."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from streams.dead_letters.letters import (
    REQUESTS_MAX,
    SENT_BYTES_MAX,
    DeadLetters,
    Letter,
    LetterFilter,
    LetterPage,
)

PAGE_LETTERS = 256

Wanted = LetterFilter | tuple[int, ...]
"""A selection, or the letters themselves, by their positions."""
Tell = Callable[[int, int], None]
"""Called with how much is done, and of how much in total."""
Progress = Callable[[str], AbstractContextManager[Tell]]
"""Shows the progress of a task, such as `reading`, for as long as it takes."""


@contextmanager
def no_progress(what: str) -> Iterator[Tell]:
    """Progress that is not shown."""
    yield lambda *_: None


async def pages(letters: DeadLetters, wanted: Wanted, tell: Tell) -> AsyncIterator[list[Letter]]:
    """The existing letters among those wanted; `tell` gets how many were looked at, and of how many."""
    if isinstance(wanted, LetterFilter):
        async for found in reporting(letters.pages(wanted, await letters.end()), tell):
            yield found
        return
    page: list[Letter] = []
    for start in range(0, len(wanted), REQUESTS_MAX):
        seen = min(start + REQUESTS_MAX, len(wanted))
        page += await letters.letters(wanted[start:seen])
        full = len(page) >= PAGE_LETTERS or sum(each.size for each in page) >= SENT_BYTES_MAX
        if full or seen == len(wanted):
            yield page
            page = []
            tell(seen, len(wanted))


async def reporting(found: AsyncIterator[LetterPage], tell: Tell) -> AsyncIterator[list[Letter]]:
    """The letters of each page; `tell` gets how many were looked at, and of how many."""
    seen = 0
    async for page in found:
        yield page.letters
        seen += page.seen
        tell(seen, seen + page.unseen)


def missing(wanted: Wanted, seen: Collection[int]) -> list[int]:
    """The named letters that do not exist."""
    return [] if isinstance(wanted, LetterFilter) else [each for each in wanted if each not in seen]
