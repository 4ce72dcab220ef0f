"""Computes the output of `inspect` at a past moment, from the recorded state."""

from typing import Any

from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.machine.handshake.proof import handshake_key
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.status import Head, inspect
from angarium.ledger.configurations import UNKNOWN_URL, policy_of
from angarium.ledger.ledger_answers import Configured, Unknown
from angarium.operations.failures import OperationError, operation
from angarium.operations.ledger_queries.ledger_access import OpenLedger, ledger_lag, number_of, text

MEMORY_MEMBERS = ("why", "remedy", "problems", "in_flight", "queued", "backlog", "last_response")
"""The members that come from a node's memory, or from the stream, not from facts."""

CONFIGURATIONS_TRIED_MAX = 16
"""The last configurations that are read for one that can be used."""


@operation
async def state_at(ledger: OpenLedger, receiver: str, at: int) -> dict[str, Any]:
    """Fold the facts up to the time `at`. Fails as invalid, as not_found, and if that is not known."""
    number = await number_of(ledger, receiver)
    known = await ledger_lag(ledger)
    found = await ledger.queries.moment(number, receiver, at)
    if isinstance(found, Unknown):
        since = f"between {text(found.since)} and" if found.since else "before"
        raise OperationError("not_found", f"the state of {receiver} is not known {since} {text(found.until)}")
    configured = await ledger.queries.configurations_before(number, at + 1, CONFIGURATIONS_TRIED_MAX)
    if not found.position and not configured:
        raise OperationError(
            "not_found", f"there was no receiver {receiver} at {text(at)}, as far as the ledger knows"
        )
    now = await ledger.queries.standing(number)
    policy = _policy(ledger, configured, found.state)
    state = _about(policy, found.state)
    document = inspect(
        state, policy, View(), at / 1000, shard=now.shard, node=await ledger.queries.owner(now.shard, at),
        queued=0, backlog=0, head=_head(state), last_answer=None, problems=[],
    )  # fmt: skip
    members: dict[str, Any] = {name: value for name, value in document.items() if name not in MEMORY_MEMBERS}
    if head := members["head"]:
        members["head"] = {name: value for name, value in head.items() if name != "type"}
    return members | {"at": text(at), "recorded_at": text(found.at), "ledger": known}


def _policy(ledger: OpenLedger, configured: list[Configured], state: State) -> Policy | None:
    """The last usable configuration; a made-up one if the ledger began later than that."""
    policy = next(filter(None, (policy_of(each.document) for each in configured)), None)
    if policy is None:
        return Policy(url=UNKNOWN_URL) if state.opened else None
    default = ledger.settings.rate
    return replace(policy, rates=(default,)) if not policy.rates and default is not None else policy


def _about(policy: Policy | None, state: State) -> State:
    """The state with its handshake taken to be about this configuration: its URL and secrets are not kept."""
    known = state.handshake
    if policy is None or known is None:
        return state
    return replace(state, handshake=replace(known, key=handshake_key(policy)))


def _head(state: State) -> Head | None:
    if not state.open:
        return None
    entry = state.open[0]
    return Head(
        position=entry.position, sequence=entry.sequence, id=entry.id, stored_at=entry.stored_at,
        published_at=entry.published_at,
    )  # fmt: skip
