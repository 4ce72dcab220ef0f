"""Resumes a receiver after a pause, a 410, too many failures, or throttling."""

from angarium.connecting import Access
from angarium.operations.control.ask import ask
from angarium.operations.failures import operation


@operation
async def resume(to: Access, receiver: str) -> None:
    """End a receiver's pause, disablement, backoff and throttling."""
    await ask(to, "resume", receiver)
