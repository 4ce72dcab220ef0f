"""Resumes a receiver after a pause, a 410, too many failures, or throttling."""

from angarium.connecting import Access
from angarium.operations.failures import operation
from angarium.operations.receivers.control_requests.ask import ask, requested_by


@operation
async def resume(access: Access, receiver: str) -> None:
    """End a receiver's pause, disablement, backoff and throttling."""
    await ask(access, "resume", receiver, requested_by(access))
