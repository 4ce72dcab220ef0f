"""Pauses a receiver: its events wait until it is resumed."""

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import ask, requested_by


@operation
async def pause(access: Access, receiver: str) -> None:
    """Pause a receiver; that is recorded in its configuration."""
    await ask(access, "pause", receiver, requested_by(access))
