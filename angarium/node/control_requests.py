"""Control requests about one receiver: inspect, ping, verify, pause, and so on.

The handler belongs to one node and answers only for receivers whose shard that node owns. It answers `ok`
only after the effect is recorded: a pause in the configuration, which alone decides about it, everything else
in the journal.
"""

import asyncio
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from actors.configuration.policy import Policy
from actors.errors import ControlDenied, Unavailable
from actors.ids import shown_name
from actors.machine.handshake.deciding import is_proof
from actors.machine.outcome import Answered, Failed
from actors.machine.scheduling.pace_in_words import pace_state
from actors.ports import Absent, Invalid
from actors.runtime.actor import Actor
from actors.runtime.host import Host
from actors.runtime.operator_actions.end_deliveries import end_deliveries
from actors.runtime.operator_actions.forget import forget
from actors.runtime.operator_actions.ping import ping
from actors.runtime.operator_actions.resume import resume
from actors.runtime.operator_actions.skip import skip
from actors.runtime.operator_actions.verify import verify
from actors.status import Head, inspect, known_head, read_head
from angarium.node.node import Node
from streams.buckets.known_configurations import KnownConfigurations
from streams.control_requests.requests import ControlRequest, Denied, Granted

LOAD_TIMEOUT_S = 5.0
VERBS = ("inspect", "status", "ping", "verify", "pause", "resume", "skip", "forget", "erase")
_SENDING_VERBS = ("ping", "verify")
"""Verbs that send a request to the receiver."""
HEAD_READ_MAX = 4
"""Largest number of events that are read to find the first one that is not a duplicate."""


class _EraseRequest(Struct, forbid_unknown_fields=True):
    """The body of `erase`: the event's id, and where its deliveries are."""

    event: str
    positions: list[int]


class _Requester(Struct):
    """The body of `pause` and `resume`, which may be empty: the author, for the record."""

    by: str = ""


class ReceiverControl:
    """Handles control requests about the receivers that `node` owns."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._configurations: KnownConfigurations = node.context.configurations

    def owns(self, receiver: str) -> bool:
        """True if this node owns the receiver's shard now."""
        return self._node.host_of(receiver) is not None

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        """Carry out the request, and return once that is recorded."""
        if request.verb not in VERBS:
            known = ", ".join(VERBS)
            return Denied("unknown_verb", f"{request.verb[:32]}: unknown verb; the verbs are {known}")
        receiver = request.receiver
        host = self._node.host_of(receiver)
        if host is None:
            return Denied("unavailable", "the receiver's shard is moving to another node; try again")
        try:
            erased = _erase_request(request.body) if request.verb == "erase" else None
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                if not await self._is_known(host, receiver):
                    if erased is not None and not host.has_turned_away(erased.positions):
                        why = f"{receiver} is unknown, and its events are being turned away; try again"
                        return Denied("unavailable", why)
                    return _unknown(receiver)
                if erased is not None and not (erased.positions or receiver in host.actors):
                    self._node.flush_soon(receiver)
                    return Granted({"messages": 0, "waiting": 0})
                actor = await host.residents.when_loaded(receiver)
            if erased is not None:
                return await self._erase(actor, erased)
            return await self._handle(request, host, actor)
        except ControlDenied as refusal:
            return Denied(refusal.code, str(refusal))
        except (Unavailable, TimeoutError):
            return Denied("unavailable", "NATS does not answer at the moment; try again")

    async def _is_known(self, host: Host, receiver: str) -> bool:
        """True if the receiver is known: requests may name receivers that never existed.

        Such a name leaves nothing in memory. A receiver that was put a moment ago is known to the leader;
        requests at the same time share one question to it.
        """
        if not self._configurations.is_known(receiver):
            await self._configurations.catch_up()
        return host.knows(receiver)

    async def _handle(self, request: ControlRequest, host: Host, actor: Actor) -> Granted | Denied:
        verb = request.verb
        if verb in _SENDING_VERBS:
            await self._configurations.confirm(actor.receiver)  # A person may just have put another URL.
        removed = actor.policy is None and not self._configurations.is_known(actor.receiver)
        looks = verb in ("inspect", "status")
        if removed and not (looks and actor.state.opened):
            return _unknown(actor.receiver)
        match verb:
            case "inspect" | "status":
                return await self._inspect(host, actor, answer_shown=verb == "inspect")
            case "ping":
                return await self._ping(actor)
            case "verify":
                return await self._verify(actor)
            case "pause" | "resume":
                return await self._pause(actor, _requested_by(request.body), paused=verb == "pause")
            case "skip":
                event = await skip(actor, _requested_by(request.body))
                return Granted({"sequence": event.sequence, "event_id": event.id})
            case _:
                discarded = await forget(actor, _requested_by(request.body))
                return Granted({"discarded": discarded, "next_sequence": actor.state.frontier.sequence + 1})

    async def _erase(self, actor: Actor, erased: "_EraseRequest") -> Granted:
        """Erase a removed receiver's deliveries, too; its shard shows life, so that its journal continues."""
        done = await end_deliveries(actor, erased.event, erased.positions)
        self._node.flush_soon(actor.receiver)
        return Granted({"messages": done.messages, "waiting": done.waiting})

    async def _inspect(self, host: Host, actor: Actor, *, answer_shown: bool) -> Granted:
        """Show the receiver's state. Its last answer may repeat an event's body, so not all may see it."""
        receiver = actor.receiver
        waiting = await host.backlog.count(receiver, actor.state.frontier.position)
        head = await _head(host, actor, waiting)
        return Granted(inspect(
            actor.state, actor.policy, actor.shown_view(), host.clock.now(),
            shard=self._node.shard_of(receiver), node=self._node.context.node,
            queued=len(actor.pending.mailbox), backlog=waiting + len(actor.state.open), head=head,
            last_answer=actor.last_answer, problems=list(self._configurations.problems(receiver)),
            needs_key=self._configurations.needs_key(receiver), answer_shown=answer_shown,
        ))  # fmt: skip

    async def _ping(self, actor: Actor) -> Granted | Denied:
        outcome = await ping(actor)
        return Granted(_answer_members(outcome))

    async def _verify(self, actor: Actor) -> Granted | Denied:
        outcome = await verify(actor)
        return Granted({"verified": is_proof(outcome)} | _answer_members(outcome))

    async def _pause(self, actor: Actor, by: str, *, paused: bool) -> Granted | Denied:
        """Edit the configuration and apply it at once; a resume also ends all else that held it back."""
        configurations, receiver = self._configurations, actor.receiver
        problem = await configurations.stored.set_paused(receiver, paused, by)
        answer = problem or await configurations.confirm(receiver)
        match answer:
            case Absent():
                return _unknown(receiver)
            case Invalid(problems):
                why = "; ".join(problems)
                return Denied("misconfigured", f"{receiver}: put a valid configuration first: {why}")
            case Policy() if paused:
                actor.configure(answer)
                return Granted({"paused": True})
            case Policy():
                pace = pace_state(actor.state, answer, actor.environment.clock.now())
                actor.configure(answer)
                await resume(actor, by)
                return Granted({"paused": False, "forgotten_pace": pace})
            case _:
                assert_never(answer)


def _answer_members(outcome: Answered | Failed) -> dict[str, Any]:
    """The answer of a receiver as JSON, or why there is none."""
    members: dict[str, Any] = {"status": outcome.status, "latency_ms": round(outcome.latency_ms, 3)}
    if isinstance(outcome, Failed):
        members["error"] = f"{outcome.error}: {outcome.detail}"
    return members


def _erase_request(body: bytes) -> "_EraseRequest":
    """Raises ControlDenied."""
    try:
        return msgspec.json.decode(body, type=_EraseRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ControlDenied("invalid", f"write the event and its positions as JSON ({error})") from error


def _requested_by(body: bytes) -> str:
    """The author of a request, or nothing if its body is empty. Raises ControlDenied."""
    if not body:
        return ""
    try:
        return shown_name(msgspec.json.decode(body, type=_Requester).by)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        sample = '{"by": "you"}'
        raise ControlDenied("invalid", f"leave the body empty, or send {sample} ({error})") from error


async def _head(host: Host, actor: Actor, waiting: int) -> Head | None:
    """The oldest event that is not settled; read from the stream if it is not in memory."""
    head = known_head(actor.state, actor.view(), actor.pending.in_flight)
    if head is None and waiting:
        page = await host.backlog.read(actor.receiver, actor.state.frontier.position, 0, HEAD_READ_MAX)
        return known_head(actor.state, actor.view(), actor.pending.in_flight) or read_head(
            actor.state, page.events
        )
    if head is not None and not head.type:
        event = await host.backlog.event(actor.receiver, head.position)
        return replace(head, type=event.type) if event else head
    return head


def _unknown(receiver: str) -> Denied:
    remedy = f"create it with angarium receiver put {receiver}, or see angarium receiver list"
    return Denied("unknown_receiver", f"there is no receiver {receiver}: {remedy}")
