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
ReportProgress = Callable[[int, int], None]
"""Called with how much is done, and of how much in total."""
Progress = Callable[[str], AbstractContextManager[ReportProgress]]
"""Shows the progress of a task, such as `reading`, for as long as it takes."""


@contextmanager
def no_progress(what: str) -> Iterator[ReportProgress]:
    """Progress that is not shown."""
    yield lambda *_: None


async def letter_pages(
    letters: DeadLetters, wanted: Wanted, on_progress: ReportProgress
) -> AsyncIterator[list[Letter]]:
    """The existing letters among those wanted; `on_progress` gets how many were read, of how many."""
    if isinstance(wanted, LetterFilter):
        async for found in reporting(letters.pages(wanted, await letters.end()), on_progress):
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
            on_progress(seen, len(wanted))


async def reporting(
    found: AsyncIterator[LetterPage], on_progress: ReportProgress
) -> AsyncIterator[list[Letter]]:
    """The letters of each page; `on_progress` gets how many were read, of how many."""
    seen = 0
    async for page in found:
        yield page.letters
        seen += page.seen
        on_progress(seen, seen + page.unseen)


def missing(wanted: Wanted, seen: Collection[int]) -> list[int]:
    """The named letters that do not exist."""
    return [] if isinstance(wanted, LetterFilter) else [each for each in wanted if each not in seen]
