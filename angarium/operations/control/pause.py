"""Lets a receiver's events wait until it is resumed."""

from angarium.connecting import Access
from angarium.operations.control.ask import ask
from angarium.operations.failures import operation


@operation
async def pause(to: Access, receiver: str) -> None:
    """Pause a receiver; that is recorded in its configuration."""
    await ask(to, "pause", receiver)
