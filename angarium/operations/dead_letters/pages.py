"""The dead letters of an operation, page by page, and its progress."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from streams.dead_letters.letters import DeadLetters, Letter, LetterPage, Selection

PAGE_LETTERS = 256

Wanted = Selection | tuple[int, ...]
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
    if isinstance(wanted, Selection):
        async for page in reporting(letters.pages(wanted, await letters.end()), tell):
            yield page
        return
    for start in range(0, len(wanted), PAGE_LETTERS):
        yield await letters.letters(wanted[start : start + PAGE_LETTERS])
        tell(min(start + PAGE_LETTERS, len(wanted)), len(wanted))


async def reporting(found: AsyncIterator[LetterPage], tell: Tell) -> AsyncIterator[list[Letter]]:
    """The letters of each page; `tell` gets how many were looked at, and of how many."""
    seen = 0
    async for page in found:
        yield page.letters
        seen += page.seen
        tell(seen, seen + page.unseen)


def missing(wanted: Wanted, seen: Collection[int]) -> list[int]:
    """The named letters that do not exist."""
    return [] if isinstance(wanted, Selection) else [each for each in wanted if each not in seen]
