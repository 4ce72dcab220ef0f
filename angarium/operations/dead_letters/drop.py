"""Drops dead letters for good."""

import itertools
from collections.abc import Callable

from msgspec import Struct

from angarium.connecting import Access
from angarium.operations.dead_letters.pages import Progress, Wanted, missing, pages, unseen
from angarium.operations.failures import operation
from streams.dead_letters.letters import DeadLetters


class Dropped(Struct, frozen=True):
    """The count of the letters that were dropped, and those that were named and are not there."""

    count: int
    missing: list[int]


@operation
async def drop(
    to: Access,
    wanted: Wanted,
    limit: int | None = None,
    agreed: Callable[[int], bool] = lambda _: True,
    progress: Progress = unseen,
) -> Dropped:
    """Drop them, at most `limit`, if `agreed`, which is asked with how many there are."""
    sequences: list[int] = []
    letters = DeadLetters(to.js, to.names)
    with progress("reading") as tell:
        async for page in pages(letters, wanted, tell):
            sequences += [letter.sequence for letter in page]
            if limit is not None and len(sequences) >= limit:
                break
    absent = missing(wanted, sequences)
    sequences = sequences[:limit]
    if not sequences or not agreed(len(sequences)):
        return Dropped(0, absent)
    gone = itertools.count(1)
    with progress("dropping") as tell:
        count = await letters.drop(sequences, lambda _: tell(next(gone), len(sequences)))
    return Dropped(count, absent)
