"""Finds dead letters, sends them again and drops them.

Whatever takes long tells how far it is (`Progress`), and whatever cannot be undone asks before.
"""

import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager

from msgspec import Struct

from angarium.connecting import installation, open_jetstream
from angarium.operations.errors import NotFound
from angarium.settings import Settings
from streams.clock import SystemTime
from streams.dead_letters.letters import DeadLetters, Letter, Page, Selection
from streams.dead_letters.redrive import Redrive, Redriven
from streams.dead_letters.redrive_lock import Turn

PAGE = 256

Wanted = Selection | tuple[int, ...]
"""What to look for, or the letters themselves, by their sequences."""
Tell = Callable[[int, int], None]
"""Hears how much is done, and of how much in all."""
Progress = Callable[[str], AbstractContextManager[Tell]]
"""Opens the progress of a work, such as `reading`, for as long as that takes."""


class Listed(Struct, frozen=True):
    """Letters, the newest first, and whether there are older ones."""

    letters: list[Letter]
    more: bool


class Sent(Struct, frozen=True):
    """The fate of the letters that were sent, and those that were named and are not there."""

    done: Redriven
    missing: list[int]


class Dropped(Struct, frozen=True):
    """The count of the letters that were dropped, and those that were named and are not there."""

    count: int
    missing: list[int]


@contextmanager
def unseen(what: str) -> Iterator[Tell]:
    """The progress that nobody watches."""
    yield lambda *_: None


async def overview(settings: Settings, wanted: Selection, limit: int, progress: Progress = unseen) -> Listed:
    """The newest letters, at most `limit` (0: all)."""
    found: list[Letter] = []
    async with open_jetstream(settings) as js:
        letters = DeadLetters(js, installation(settings).names)
        with progress("reading") as tell:
            async for page in _told(letters.newest(wanted, await letters.end()), tell):
                found += page
                if 0 < limit < len(found):
                    return Listed(found[:limit], more=True)
    return Listed(found, more=False)


async def find(settings: Settings, sequence: int) -> Letter:
    """One letter. Raises NotFound."""
    async with open_jetstream(settings) as js:
        letter = await DeadLetters(js, installation(settings).names).letter(sequence)
    if letter is None:
        raise NotFound(f"there is no letter {sequence}; angarium dead list shows all")
    return letter


async def redrive(
    settings: Settings,
    wanted: Wanted,
    limit: int | None,
    *,
    unsure_too: bool = False,
    progress: Progress = unseen,
    waiting: Callable[[float, float], None] = lambda began_at, wait_s: None,
) -> Sent:
    """Send them again, at most `limit`.

    `waiting` hears when a redrive began that did not end in order, and how long its end is waited for. Raises
    `Busy` where another one is under way.
    """
    seen: set[int] = set()
    async with open_jetstream(settings) as js:
        names = installation(settings).names
        turn = Turn(js, names, uuid.uuid4().hex, SystemTime())
        await turn.take(lambda plan, wait_s: waiting(plan.at, wait_s))
        work = Redrive(js, names, turn, unsure_too=unsure_too)
        await work.begin()
        seen.update(work.done.finished)
        with progress("redriving") as tell:
            async for page in _pages(DeadLetters(js, names), wanted, tell):
                seen.update(letter.sequence for letter in page)
                while page and work.done.redriven != limit and not work.done.stopped:
                    room = PAGE if limit is None else limit - work.done.redriven
                    await work.send(page[:room])
                    page = page[room:]
                if work.done.redriven == limit or work.done.stopped:
                    break
        await work.end()
    return Sent(work.done, _missing(wanted, seen))


async def drop(
    settings: Settings,
    wanted: Wanted,
    limit: int | None,
    agreed: Callable[[int], bool],
    progress: Progress = unseen,
) -> Dropped:
    """Drop them, at most `limit`, if `agreed`, which is asked with how many there are."""
    sequences: list[int] = []
    async with open_jetstream(settings) as js:
        letters = DeadLetters(js, installation(settings).names)
        with progress("reading") as tell:
            async for page in _pages(letters, wanted, tell):
                sequences += [letter.sequence for letter in page]
                if limit is not None and len(sequences) >= limit:
                    break
        missing = _missing(wanted, sequences)
        sequences = sequences[:limit]
        if not sequences or not agreed(len(sequences)):
            return Dropped(0, missing)
        gone = itertools.count(1)
        with progress("dropping") as tell:
            count = await letters.drop(sequences, lambda _: tell(next(gone), len(sequences)))
        return Dropped(count, missing)


async def _pages(letters: DeadLetters, wanted: Wanted, tell: Tell) -> AsyncIterator[list[Letter]]:
    """The letters that there are of those wanted; `tell` hears how many were looked at, of how many."""
    if isinstance(wanted, Selection):
        async for page in _told(letters.pages(wanted, await letters.end()), tell):
            yield page
        return
    for start in range(0, len(wanted), PAGE):
        yield await letters.letters(wanted[start : start + PAGE])
        tell(min(start + PAGE, len(wanted)), len(wanted))


async def _told(pages: AsyncIterator[Page], tell: Tell) -> AsyncIterator[list[Letter]]:
    seen = 0
    async for page in pages:
        yield page.letters
        seen += page.seen
        tell(seen, seen + page.unseen)


def _missing(wanted: Wanted, seen: Collection[int]) -> list[int]:
    return [] if isinstance(wanted, Selection) else [each for each in wanted if each not in seen]
