"""Deletes dead letters permanently."""

import itertools
from collections.abc import Callable

from msgspec import Struct

from angarium.access import Access
from angarium.operations.dead_letters.pages import Progress, Wanted, letter_pages, missing, no_progress
from angarium.operations.failures import operation
from streams.dead_letters.letters import DeadLetters
from streams.lost_tails.marks import Mark


class DroppedLetters(Struct, frozen=True):
    """The number of dropped letters, and the named ones that do not exist."""

    count: int
    missing: list[int]


@operation
async def drop(
    access: Access,
    wanted: Wanted,
    limit: int | None = None,
    agreed: Callable[[int], bool] = lambda _: True,
    progress: Progress = no_progress,
) -> DroppedLetters:
    """Drop the letters, at most `limit`, if `agreed` returns True for their number."""
    found: list[Mark] = []
    letters = DeadLetters(access.js, access.names)
    with progress("reading") as on_progress:
        async for page in letter_pages(letters, wanted, on_progress):
            found += [letter.mark for letter in page]
            if limit is not None and len(found) >= limit:
                break
    absent = missing(wanted, {each.position for each in found})
    found = found[:limit]
    if not found or not agreed(len(found)):
        return DroppedLetters(0, absent)
    gone = itertools.count(1)
    with progress("dropping") as on_progress:
        count = await letters.drop(found, lambda _: on_progress(next(gone), len(found)))
    return DroppedLetters(count, absent)
