"""Finds dead letters by their numbers, all of them or a tenant's alone."""

from collections.abc import Sequence

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from streams.dead_letters.letters import DeadLetters, Letter


@operation
async def find(to: Access, position: int, *, tenant: str | None = None) -> Letter:
    """Look it up, if given among the letters of that tenant. Fails as not_found."""
    letter = await DeadLetters(to.js, to.names).letter(position)
    if letter is None or tenant not in (None, tenant_of(letter)):
        raise OperationError("not_found", f"there is no letter {position}; angarium dead list shows all")
    return letter


@operation
async def owned(to: Access, positions: Sequence[int], tenant: str) -> tuple[int, ...]:
    """The ones of these letters that are there and the tenant's, in their order."""
    letters = await DeadLetters(to.js, to.names).letters(positions)
    return tuple(each.position for each in letters if tenant_of(each) == tenant)


def tenant_of(letter: Letter) -> str:
    """The tenant of the receiver that it was for."""
    return letter.receiver.partition(".")[0]
