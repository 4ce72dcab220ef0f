"""Finds dead letters by their numbers, among all letters or one tenant's."""

from collections.abc import Sequence

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from streams.dead_letters.letters import DeadLetters, Letter


@operation
async def find(access: Access, position: int, *, tenant: str | None = None) -> Letter:
    """The letter at that position; with `tenant`, only if it is that tenant's. Fails as not_found."""
    letter = await DeadLetters(access.js, access.names).letter(position)
    if letter is None or tenant not in (None, _tenant_of(letter)):
        raise OperationError(
            "not_found", f"there is no letter {position}", remedy="; angarium dead list shows all"
        )
    return letter


@operation
async def owned(access: Access, positions: Sequence[int], tenant: str) -> tuple[int, ...]:
    """The positions of those letters that exist and belong to the tenant, in their order."""
    letters = await DeadLetters(access.js, access.names).letters(positions)
    return tuple(each.position for each in letters if _tenant_of(each) == tenant)


def _tenant_of(letter: Letter) -> str:
    """The tenant of the letter's receiver."""
    return letter.receiver.partition(".")[0]
