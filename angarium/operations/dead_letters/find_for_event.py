"""Finds the dead letters of an event: the numbers that `dead redrive` takes."""

from collections.abc import Collection
from contextlib import suppress

from angarium.access import Access
from streams.dead_letters.letters import DeadLetters, LetterFilter
from streams.nats.errors import NotPermitted

SEARCHED_MAX = 10_000
"""Newest positions of the dead letters that are searched for one receiver."""
RECEIVERS_MAX = 20
"""Receivers whose dead letters are searched."""


async def letters_of(access: Access, event: str, receivers: Collection[str]) -> dict[tuple[str, int], int]:
    """The newest dead letter for each of these receivers and each of its numbers.

    It lacks what a user without permission may not see.
    """
    letters, found = DeadLetters(access.js, access.names), dict[tuple[str, int], int]()
    with suppress(NotPermitted):
        await _find(letters, event, receivers, found)
    return found


async def _find(
    letters: DeadLetters, event: str, receivers: Collection[str], found: dict[tuple[str, int], int]
) -> None:
    for receiver in sorted(receivers)[:RECEIVERS_MAX]:
        seen = 0
        async for page in letters.newest(LetterFilter(receivers=receiver), await letters.end()):
            for each in page.letters:
                if each.event_id == event and each.sequence is not None:
                    found.setdefault((receiver, each.sequence), each.position)
            seen += page.seen
            if seen >= SEARCHED_MAX:
                break
