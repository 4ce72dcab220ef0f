"""Shows the live state of a receiver, from the node that owns it."""

from typing import Any

from angarium.connecting import Access
from angarium.operations.failures import OperationError, operation
from angarium.operations.receivers.control_requests.ask import ask

StateDocument = dict[str, Any]
"""The answer to `inspect` (docs/wire.md). Nodes of other versions may have more or fewer members."""


@operation
async def state(access: Access, receiver: str) -> StateDocument:
    """The live state, without the receiver's last answer if NATS does not permit it to our user."""
    try:
        return await ask(access, "inspect", receiver)
    except OperationError as refused:
        if refused.kind != "not_allowed":
            raise
        try:
            return await ask(access, "status", receiver)
        except OperationError as too:
            raise (refused if too.kind == "not_allowed" else too) from None
