"""Shows the live state of a receiver, from the node that owns it."""

from typing import Any

from actors.ids import tenant_of
from angarium.access import Access
from angarium.operations.control_requests.ask import ask
from angarium.operations.failures import NotDone, OperationError, operation
from angarium.operations.routing_delays import unrouted_notes

StateDocument = dict[str, Any]
"""The answer to `inspect` (docs/wire.md). Nodes of other versions may have more or fewer members."""


@operation
async def inspect_receiver(access: Access, receiver: str) -> StateDocument:
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


@operation
async def inspect_with_unrouted(access: Access, receiver: str) -> StateDocument:
    """The live state; `unrouted` says how many events of its tenant wait to be routed, if there are some."""
    found = await inspect_receiver(access, receiver)
    if isinstance(found, NotDone):
        raise OperationError(found.kind, found.text, found.code, found.problems, remedy=found.remedy)
    notes = await unrouted_notes(access, tenant_of(receiver))
    return found | {"unrouted": notes[0]} if notes else found
