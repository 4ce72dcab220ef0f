"""Requests about one receiver: `<prefix>.ctl.<verb>.<tenant>.<name>`, answered by the owner of its shard.

Every node receives every request, since no queue group could know the owner; only the owner answers. So an
answer always comes from the live state, and two answers would mean two owners. A request to a node itself has
`_nodes` instead of the tenant, and the node's name instead of the receiver's.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol, assert_never

import msgspec
from msgspec import Struct, field

from actors.errors import InvalidName
from actors.ids import split_receiver, tenant_of
from streams.control_requests.bounded_subscription import BoundedSubscription
from streams.installation.topology import Names
from streams.nats.inboxes import Inboxes
from streams.nats.wire import Message, Wire
from streams.tasks import cancel_and_wait

log = logging.getLogger(__name__)

NODES = "_nodes"
"""In the place of a tenant, which cannot begin with `_`, for requests to a node itself."""
BODY_BYTES_MAX = 64 << 10
UNDER_WAY_MAX = 256
"""Requests that are handled at a time; more are denied, since a ping may take a minute, and requests must not
fill the memory. While as many again are being denied, others get no answer: a denial costs memory and time,
too."""
TENANT_UNDER_WAY_MAX = 64
"""Requests about receivers of one tenant among them, so that none keeps out the others."""


class ControlRequest(Struct, frozen=True):
    """A request: `verb` as in the subject, `receiver` a well-formed id, `body` of at most 64 KiB.

    In a request to a node, `receiver` is `_nodes.<node>`.
    """

    verb: str
    receiver: str
    body: bytes


class Granted(Struct, frozen=True):
    """Success: the request is done and recorded. `members` come after `"ok": true` in the answer."""

    members: Mapping[str, Any] = field(default_factory=dict)


class Denied(Struct, frozen=True):
    """A refusal: nothing was done. `code` is one token for programs, `message` is a sentence for people."""

    code: str
    message: str


class ControlHandler(Protocol):
    """Answers requests about receivers."""

    def owns(self, receiver: str) -> bool:
        """True if this node owns the receiver's shard now. The receiver may be any two tokens."""

    async def handle(self, request: ControlRequest) -> Granted | Denied:
        """Carry out the request, and return once that is recorded."""


class ControlTotals(Struct):
    """Totals of the requests that this node answered; `busy_s` is the sum of the times they took."""

    requests: int = 0
    errors: int = 0
    last_error: str = ""
    busy_s: float = 0.0


class ControlServer:
    """Receives the requests of one installation, and answers those about receivers that `handler` owns.

    `inboxes` decides which reply subjects get an answer. `node_handler` answers requests to this node.
    """

    def __init__(
        self,
        wire: Wire,
        names: Names,
        handler: ControlHandler,
        inboxes: Inboxes | None = None,
        node_handler: ControlHandler | None = None,
    ) -> None:
        self.subject = names.control("*", "*", "*")
        self.totals = ControlTotals()
        self._wire = wire
        self._names = names
        self._handler = handler
        self._node_handler = node_handler
        self._inboxes = inboxes or Inboxes()
        self._under_way: dict[asyncio.Task[None], None] = {}
        self._requests_by_tenant = Counter[str]()
        self._subscription = BoundedSubscription(wire, [(self.subject, self._on_message)])

    async def start(self) -> None:
        """Begin to answer requests."""
        self._loop = asyncio.get_running_loop()
        await self._subscription.start()

    async def stop(self) -> None:
        """Take no more requests, and give up those under way: their clients get no answer."""
        await self._subscription.stop()
        await cancel_and_wait(*self._under_way)

    def _on_message(self, message: Message) -> None:
        if len(self._under_way) >= 2 * UNDER_WAY_MAX:
            return
        verb, receiver = self._names.verb_and_receiver(message.subject)
        handler = self._handler_of(receiver)
        if handler is not None and self._inboxes.includes(message.reply) and handler.owns(receiver):
            request = ControlRequest(verb, receiver, message.data)
            task = self._loop.create_task(self._answer_in_turn(handler, request, message.reply))
            self._under_way[task] = None
            task.add_done_callback(self._under_way.pop)

    def _handler_of(self, receiver: str) -> ControlHandler | None:
        return self._node_handler if receiver.startswith(f"{NODES}.") else self._handler

    async def _answer_in_turn(self, handler: ControlHandler, request: ControlRequest, inbox: str) -> None:
        tenant = tenant_of(request.receiver)
        self._requests_by_tenant[tenant] += 1
        try:
            await self._answer(handler, request, inbox, self._requests_by_tenant[tenant])
        finally:
            self._requests_by_tenant -= Counter({tenant: 1})

    async def _answer(
        self, handler: ControlHandler, request: ControlRequest, inbox: str, tenant_requests: int
    ) -> None:
        began_at = self._loop.time()
        answer = self._denied_unread(request, tenant_requests) or await self._handle(handler, request)
        data = _encode(answer)
        if len(data) > self._wire.max_payload:
            answer = Denied(
                "too_large", f"the answer has {len(data)} bytes, more than nats-server's max_payload"
            )
            data = _encode(answer)
        if isinstance(answer, Denied):
            self.totals.errors += 1
            self.totals.last_error = f"{answer.code}: {answer.message}"
        self.totals.requests += 1
        self.totals.busy_s += self._loop.time() - began_at
        await self._wire.publish(inbox, data)

    def _denied_unread(self, request: ControlRequest, tenant_requests: int) -> Denied | None:
        """Deny a request because of its form, or because too many are under way; None if it is accepted."""
        if len(self._under_way) > UNDER_WAY_MAX:
            return Denied("busy", f"{UNDER_WAY_MAX} requests are running on this node; try again later")
        if tenant_requests > TENANT_UNDER_WAY_MAX:
            why = f"{TENANT_UNDER_WAY_MAX} requests of this tenant are running on this node; try again later"
            return Denied("busy", why)
        if len(request.body) > BODY_BYTES_MAX:
            return Denied("too_large", f"the body of a request has at most {BODY_BYTES_MAX} bytes")
        try:
            if not request.receiver.startswith(f"{NODES}."):
                split_receiver(request.receiver)
        except InvalidName as error:
            return Denied("invalid_receiver", str(error))
        return None

    async def _handle(self, handler: ControlHandler, request: ControlRequest) -> Granted | Denied:
        try:
            return await handler.handle(request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The shard that was waited for has ended, not this node.
            return Denied("unavailable", "the receiver's shard has moved to another node; try again")
        except Exception as error:
            log.exception("control.failed", extra={"verb": request.verb, "receiver": request.receiver})
            return Denied("internal", f"{type(error).__name__}; see the node's log")


def _encode(answer: Granted | Denied) -> bytes:
    match answer:
        case Granted(members):
            return msgspec.json.encode({"ok": True, **members})
        case Denied():
            return msgspec.json.encode({"ok": False, "error": answer})
        case _:
            assert_never(answer)
