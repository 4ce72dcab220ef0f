"""The receivers of the demo: how each behaves, and the server that records its requests.

They run in the demo's own process, so that it has their records. A server binds its port when it is created,
and listens from `open` on: before that, connections are refused, as by a machine that is up while its service
is down.
"""

import asyncio
import hashlib
import secrets
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from actors.configuration.policy import Rate
from actors.machine.bucket import RateLimit
from angarium.delivery.sender import BATCH_TYPE
from angarium.delivery.signing import parse_secret
from angarium.demo.records import Arrival, ReceiverRecord
from angarium.development import signature_check
from angarium.development.handshakes import handshake_reply
from angarium.http_server import Received, Reply, Reset, serve_on

HOST = "127.0.0.1"
TENANT = "demo"
RATE = Rate(limit=20, burst=5)
RETRY_AFTER_S = 1

StandardCheck = Callable[[str, bytes, Mapping[str, str]], str]
"""Takes secret, body and headers of a request; returns its fault by Standard Webhooks, or nothing."""


class DemoRequest(Struct, frozen=True):
    """A request as a `manner` gets it: the nth one, from 1 on, and whether the receiver was repaired.

    `accepted_lately`: the number of requests that it accepted in the `HIDDEN_WINDOW_S` before.
    """

    number: int
    event_type: str
    attempt: int
    mended: bool
    accepted_lately: int


class Role(Struct, frozen=True, kw_only=True):
    """The behaviour of a receiver.

    `manner` answers a request; `events` are the types it subscribes to; `config` is the rest of the
    configuration, its URL and its secret. One that is `late` listens only after the first seconds. Events
    that it `rejected` are sent once more after it was repaired. `hidden_limit`: it answers 429 to requests
    beyond so many a second, and says nothing about that; 0: it has no such limit.
    """

    name: str
    about: str
    manner: Callable[[DemoRequest], Reply | Reset]
    events: tuple[str, ...] = ("github.>",)
    config: dict[str, Any]
    limit: RateLimit | None = None
    late: bool = False
    rejected: str = ""
    hidden_limit: int = 0

    def wants(self, event_type: str) -> bool:
        """True if an event is for it, by the demo's own reading of `events`: the router is under test."""
        words = event_type.split(".")
        return any(_matches(pattern.split("."), words) for pattern in self.events)


def _matches(pattern: list[str], words: list[str]) -> bool:
    if pattern[-1] == ">":
        pattern, words = pattern[:-1], words[: len(pattern) - 1]
    return len(pattern) == len(words) and all(p in ("*", w) for p, w in zip(pattern, words, strict=True))


def _healthy(_: DemoRequest) -> Reply:
    return Reply()


def _unhurried(_: DemoRequest) -> Reply:
    return Reply(delay_s=SLOW_ANSWER_S)


def _flaky(request: DemoRequest) -> Reply | Reset:
    """Two resets in a row, since the first, on a kept connection, is tried again within the same attempt."""
    match request.number % 29:
        case 4 | 17:
            return Reply(status=503)
        case 9 | 10:
            return Reset()
        case 24:
            return Reply(status=429, headers=(("retry-after", str(RETRY_AFTER_S)),))
        case _:
            return Reply()


def _slow(request: DemoRequest) -> Reply:
    """One type of event fails again and again."""
    stubborn = request.event_type == STUBBORN_TYPE and request.attempt < STUBBORN_ATTEMPTS
    return Reply(status=503 if stubborn else 200, delay_s=SLOW_ANSWER_S)


def _picky(request: DemoRequest) -> Reply:
    return Reply(status=422 if request.event_type == PING_TYPE and not request.mended else 200)


def _hidden(request: DemoRequest) -> Reply:
    """Refuses above its limit. Its answers take a while: so a busy machine does not make them look slow."""
    if request.accepted_lately >= HIDDEN_LIMIT * HIDDEN_WINDOW_S:
        return Reply(status=429)
    return Reply(delay_s=2 * SLOW_ANSWER_S)


HIDDEN_LIMIT, HIDDEN_WINDOW_S = 20, 2
PING_TYPE = "github.ping"
STUBBORN_TYPE = "github.public"
STUBBORN_ATTEMPTS = 5
SLOW_ANSWER_S = 0.1
REJECTED_ATTEMPTS = 3

CAST = (
    Role(name="healthy", about="answers at once", manner=_healthy, config={"handshake": "hmac"}),
    Role(
        name="limited", about="20/s, burst 5", manner=_healthy, events=("github.*.*",),
        config={"rate": {"limit": RATE.limit, "per": RATE.per, "burst": RATE.burst}},
        limit=RateLimit(RATE.per_second, RATE.burst_max),
    ),
    Role(
        name="flaky", about="503, 429, resets", manner=_flaky,
        events=("github.*.created", "github.*.deleted", "github.*.added"),
        config={"retry": {"base_s": 0.1, "cap_s": 1}},
    ),
    Role(
        name="dead", about="dead at first", manner=_healthy, late=True,
        events=("github.*.created", "github.*.removed", "github.*.edited"),
        config={"retry": {"base_s": 0.25, "cap_s": 1}},
    ),
    Role(
        name="relaxed", about="slow, 8 at a time", manner=_slow,
        config={"order": "relaxed", "concurrency": 8, "retry": {"base_s": 0.2, "cap_s": 1}},
    ),
    Role(
        name="batched", about="20 in a request", manner=_unhurried, config={"batch": {"max_events": 20}},
    ),
    Role(
        name="picky", about="rejects pings", manner=_picky,
        events=(PING_TYPE, "github.team.*"), rejected=PING_TYPE,
        config={"retry": {"base_s": 0.05, "cap_s": 0.2, "rejected_attempts": REJECTED_ATTEMPTS}},
    ),
    Role(
        name="hidden", about=f"429 above {HIDDEN_LIMIT}/s", manner=_hidden, hidden_limit=HIDDEN_LIMIT,
        events=(
            "github.*.created", "github.*.deleted", "github.*.added", "github.*.removed", "github.*.edited",
            "github.organization.*", "github.projects_v2_item.*", "github.marketplace_purchase.*",
        ),
        config={
            "order": "relaxed", "concurrency": 16, "adaptive": {"smart": True},
            "retry": {"base_s": 0.2, "cap_s": 1},
        },
    ),
)  # fmt: skip


class DemoReceiver:
    """A receiver of the demo, with its server and its record."""

    def __init__(self, role: Role, check: StandardCheck) -> None:
        self.role = role
        self.id = f"{TENANT}.{role.name}"
        self.record = ReceiverRecord(
            name=role.name,
            limit=role.limit,
            strict=role.config.get("order") != "relaxed",
            batched="batch" in role.config,
            must_prove=role.config.get("handshake") == "hmac",
            rejected_attempts=REJECTED_ATTEMPTS if role.rejected else 0,
            hidden_limit=role.hidden_limit,
        )
        self.listening = False
        self.mended = False
        self.secret = "whsec_" + b64encode(secrets.token_bytes(32)).decode()
        self._key = parse_secret(self.secret, "secrets")
        self._check = check
        self._bound = socket.socket()
        self._bound.bind((HOST, 0))
        self._server: asyncio.Server | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The configuration that is put for it."""
        port = self._bound.getsockname()[1]
        url = f"http://{HOST}:{port}/"
        return {"url": url, "secrets": [self.secret], "events": self.role.events, **self.role.config}

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await serve_on(self._bound, self._answer)
        self.listening = True

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._bound.close()

    def _answer(self, received: Received) -> Reply | Reset:
        at = time.monotonic()
        if (reply := handshake_reply(received, [self.secret])) is not None:
            self.record.proved_at = self.record.proved_at or at
            return reply
        number, headers = len(self.record.requests) + 1, received.headers
        event_type = headers.get("angarium-event", "")
        attempt = signature_check.number(headers.get("angarium-attempt")) or 0
        lately = self.record.accepted_since(at - HIDDEN_WINDOW_S)
        answer = self.role.manner(DemoRequest(number, event_type, attempt, self.mended, lately))
        arrival = self._arrival(at, received, answer)
        if event_type == BATCH_TYPE:
            self.record.arrivals.extend(_events_of(received.body, arrival))
        else:
            self.record.arrivals.append(arrival)
        return answer

    def _arrival(self, at: float, received: Received, reply: Reply | Reset) -> Arrival:
        headers, body = received.headers, received.body
        by_standard = self._check(self.secret, body, headers)
        problems = signature_check.problems(headers, body, [self._key], time.time())
        throttled = isinstance(reply, Reply) and "retry-after" in dict(reply.headers)
        return Arrival(
            at=at,
            event_id=headers.get("webhook-id", ""),
            sequence=signature_check.number(headers.get("angarium-sequence")) or 0,
            attempt=signature_check.number(headers.get("angarium-attempt")) or 0,
            digest=hashlib.sha256(body).digest(),
            signature=headers.get("angarium-signature", ""),
            again=headers.get("angarium-again", ""),
            status=reply.status if isinstance(reply, Reply) else None,
            retry_after_s=RETRY_AFTER_S if throttled else 0,
            problems=(*([by_standard] if by_standard else []), *problems),
        )


class _BatchEvent(Struct):
    """An event of a batch; `data` are its bytes as they stand there."""

    sequence: int
    id: str
    data: Raw


class _Batch(Struct):
    """The body of a batch."""

    events: list[_BatchEvent]


def _events_of(body: bytes, request: Arrival) -> Iterator[Arrival]:
    """The arrivals of a batch's events. Each may come in another batch, so it has no signature of its own."""
    for place, event in enumerate(msgspec.json.decode(body, type=_Batch).events):
        yield replace(
            request, place=place, event_id=event.id, sequence=event.sequence, signature="",
            digest=hashlib.sha256(event.data).digest(),
        )  # fmt: skip


def standard_check() -> StandardCheck:
    """Verification by the package `standardwebhooks`, as a receiver would do it. Raises ImportError."""
    from standardwebhooks import Webhook, WebhookVerificationError

    def check(secret: str, body: bytes, headers: Mapping[str, str]) -> str:
        try:
            Webhook(secret).verify(body, dict(headers), json_parse=False)
        except (WebhookVerificationError, ValueError) as error:
            return f"standardwebhooks: {error}"
        return ""

    return check
