"""Finds one dead letter by its number."""

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from streams.dead_letters.letters import DeadLetters, Letter


@operation
async def find(to: Access, position: int) -> Letter:
    """Look it up. Fails as not_found."""
    letter = await DeadLetters(to.js, to.names).letter(position)
    if letter is None:
        raise OperationError("not_found", f"there is no letter {position}; angarium dead list shows all")
    return letter
