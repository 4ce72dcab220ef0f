"""Finds dead letters by their numbers, among all letters or one tenant's."""

from collections.abc import Sequence

from actors.ids import tenant_of
from angarium.access import Access
from angarium.operations.failures import OperationError, operation
from streams.dead_letters.letters import DeadLetters, Letter


@operation
async def find_letter(access: Access, position: int, *, tenant: str | None = None) -> Letter:
    """The letter at that position; with `tenant`, only if it is that tenant's. Fails as not_found."""
    letter = await DeadLetters(access.js, access.names).letter(position)
    if letter is None or tenant not in (None, tenant_of(letter.receiver)):
        raise OperationError(
            "not_found", f"there is no letter {position}", remedy="; angarium dead list shows all"
        )
    return letter


@operation
async def owned_letters(access: Access, positions: Sequence[int], tenant: str) -> tuple[int, ...]:
    """The positions of those letters that exist and belong to the tenant, in their order."""
    found = await DeadLetters(access.js, access.names).receivers(dict.fromkeys(positions))
    return tuple(sorted(each for each, receiver in found.items() if tenant_of(receiver) == tenant))
