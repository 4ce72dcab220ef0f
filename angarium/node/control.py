"""Where requests about one receiver are dealt with: inspect, status, ping, pause, resume, skip, forget.

The desk belongs to one node and answers only for receivers whose shard that node owns. `ok` is said only
after what was done is on record: a pause in the configuration, which is the only truth about it, the rest in
the journal.
"""

import asyncio
from typing import Any, assert_never

from actors.machine.outcome import Answered
from actors.policy import Policy
from actors.ports import Absent, Invalid, Unavailable
from actors.runtime.discarding import forget
from actors.runtime.host import Host
from actors.runtime.ping import Refusal, ping
from actors.runtime.shell import Shell
from actors.runtime.skipping import skip
from actors.status import inspect
from angarium.node.node import Node
from streams.control import Denied, Done, Request
from streams.receivers import Receivers

LOAD_TIMEOUT_S = 5.0


class ReceiverDesk:
    """Deals with the control requests of the receivers that `node` owns."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._receivers: Receivers = node.around.receivers

    def owns(self, receiver: str) -> bool:
        """Whether this node owns the receiver's shard now."""
        return self._node.host_of(receiver) is not None

    async def deal(self, request: Request) -> Done | Denied:
        """Do what is asked, and return once it is recorded."""
        host = self._node.host_of(request.receiver)
        if host is None:
            return Denied("unavailable", "the receiver's shard is on its way to another node; ask again")
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                shell = await host.resident(request.receiver)
            match request.verb:
                case "inspect":
                    return await self._inspect(host, shell, answer_shown=True)
                case "status":
                    return await self._inspect(host, shell, answer_shown=False)
                case "ping":
                    return await self._ping(shell)
                case "pause":
                    return await self._pause(shell, paused=True)
                case "resume":
                    return await self._pause(shell, paused=False)
                case "skip":
                    return await self._skip(shell)
                case "forget":
                    return await self._forget(shell)
                case verb:
                    known = "inspect, status, ping, pause, resume, skip, forget"
                    return Denied("unknown_verb", f"{verb[:32]}: there is no such verb; there are {known}")
        except Refusal as refusal:
            return Denied(refusal.code, str(refusal))
        except (Unavailable, TimeoutError):
            return Denied("unavailable", "NATS does not answer just now; ask again")

    async def _inspect(self, host: Host, shell: Shell, *, answer_shown: bool) -> Done | Denied:
        """Show how the receiver does. Not all may see its last answer, which may repeat an event's body."""
        receiver = shell.receiver
        if not shell.state.opened and shell.policy is None and not self._receivers.known(receiver):
            return _unknown(receiver)
        state = shell.state
        waiting = await host.backlog.count(receiver, state.frontier.position)
        return Done(inspect(
            shell.state, shell.policy, shell.view(), host.clock.now(), shard=self._node.shard_of(receiver),
            node=self._node.around.node, queued=len(shell.mailbox), backlog=waiting + len(state.open),
            last_answer=shell.last_answer, problems=list(self._receivers.problems(receiver)),
            answer_shown=answer_shown,
        ))  # fmt: skip

    async def _ping(self, shell: Shell) -> Done | Denied:
        if shell.policy is None and not self._receivers.known(shell.receiver):
            return _unknown(shell.receiver)
        outcome = await ping(shell)
        members: dict[str, Any] = {"status": outcome.status, "latency_ms": round(outcome.latency_ms, 3)}
        if not isinstance(outcome, Answered):
            members["error"] = f"{outcome.error}: {outcome.detail}"
        return Done(members)

    async def _skip(self, shell: Shell) -> Done | Denied:
        if shell.policy is None and not self._receivers.known(shell.receiver):
            return _unknown(shell.receiver)
        event = await skip(shell)
        return Done({"sequence": event.sequence, "event_id": event.id})

    async def _forget(self, shell: Shell) -> Done | Denied:
        if shell.policy is None and not self._receivers.known(shell.receiver):
            return _unknown(shell.receiver)
        discarded = await forget(shell)
        return Done({"discarded": discarded, "next_sequence": shell.state.frontier.sequence + 1})

    async def _pause(self, shell: Shell, *, paused: bool) -> Done | Denied:
        """Edit the configuration, take it up at once, and end what held the receiver back on a resume."""
        answer = await self._receivers.set_paused(shell.receiver, paused)
        match answer:
            case Absent():
                return _unknown(shell.receiver)
            case Invalid(problems):
                why = "; ".join(problems)
                return Denied("misconfigured", f"{shell.receiver}: put a valid configuration first: {why}")
            case Policy():
                shell.configure(answer)
                if not paused:
                    await shell.resume()
                return Done({"paused": paused})
            case _:
                assert_never(answer)


def _unknown(receiver: str) -> Denied:
    return Denied("unknown_receiver", f"{receiver}: there is no such receiver; put its configuration first")
