"""Requests to a node about its part in the fleet, drain and resume: `<prefix>.ctl.<verb>._nodes.<node>`.

A node that is drained hands its shards over and gets no others, until it is resumed or started again. The
request only changes what its heartbeats say; every node draws the same conclusion from them
(`streams.fleet.placement`).
"""

import logging

from streams.control_requests.requests import NODES, ControlRequest, Denied, Granted
from streams.fleet.members import Members
from streams.fleet.placement import can_drain

VERBS = ("drain", "resume")
LAST_NODE_CODE = "last_node"
OLDER_NODES_CODE = "older_nodes"

log = logging.getLogger(__name__)


class NodeControl:
    """Handles the requests to the node whose membership this is."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def owns(self, addressee: str) -> bool:
        """True if the request is to this node."""
        return addressee == f"{NODES}.{self._members.node}"

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        """Carry out the request, and return once a heartbeat that says so is stored."""
        if request.verb not in VERBS:
            known = ", ".join(VERBS)
            return Denied("unknown_verb", f"{request.verb[:32]}: unknown verb; nodes know {known}")
        draining = request.verb == "drain"
        if draining and (denied := self._undrainable()):
            return denied
        self._log(draining)
        if not await self._members.set_draining(draining):
            return Denied("unavailable", "no heartbeat could be stored yet; the next ones will say it")
        return Granted({"draining": draining})

    def _log(self, draining: bool) -> None:
        if draining and not self._members.draining:
            log.info("node.draining", extra={"node": self._members.node})
        elif self._members.draining and not draining:
            log.info("node.resumed", extra={"node": self._members.node})

    def _undrainable(self) -> Denied | None:
        """Deny a drain that would leave shards without a node that wants them; None if it is possible."""
        members = self._members
        if not can_drain(members.live_nodes):
            return Denied(OLDER_NODES_CODE, "a node of an older version would not take the shards")
        if not any(not each.draining for each in members.live_nodes if each.name != members.node):
            return Denied(LAST_NODE_CODE, f"no other live node would take the shards of {members.node}")
        return None
