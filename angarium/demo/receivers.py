"""The four receivers of the demo: how each behaves, and the server that writes down what comes.

They live in the demo's own process, so that their records need no way back to it. A server binds its port
when it is made and listens from `open` on: before that, whoever connects is refused, as by a machine that is
up while its service is down.
"""

import asyncio
import hashlib
import secrets
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from actors.bucket import Limit
from actors.policy import Rate
from angarium import verification
from angarium.delivery.signing import parse_secret
from angarium.demo.records import Arrival, Record
from angarium.listener import Received, Reply, Reset, serve_on

HOST = "127.0.0.1"
TENANT = "demo"
RATE = Rate(limit=20, burst=5)
RETRY_AFTER_S = 1

StandardCheck = Callable[[str, bytes, Mapping[str, str]], str]
"""Secret, body and headers of a request to what is wrong with them by Standard Webhooks; empty: nothing."""


class Role(Struct, frozen=True, kw_only=True):
    """How a receiver behaves.

    `manner` answers its nth request, from 1 on; `config` stands beside its URL and secret; one that is `late`
    listens only after the first seconds.
    """

    name: str
    about: str
    manner: Callable[[int], Reply | Reset]
    events: int
    config: dict[str, Any]
    limit: Limit | None = None
    late: bool = False


def _well(_: int) -> Reply:
    return Reply()


def _badly(number: int) -> Reply | Reset:
    """Two resets in a row, since the first, on a kept connection, is tried again within the same attempt."""
    match number % 29:
        case 4 | 17:
            return Reply(status=503)
        case 9 | 10:
            return Reset()
        case 24:
            return Reply(status=429, headers=(("retry-after", str(RETRY_AFTER_S)),))
        case _:
            return Reply()


CAST = (
    Role(name="healthy", about="answers at once", manner=_well, events=160, config={}),
    Role(
        name="limited", about="20/s, burst 5", manner=_well, events=240,
        config={"rate": {"limit": RATE.limit, "per": RATE.per, "burst": RATE.burst}},
        limit=Limit(RATE.per_second, RATE.burst_max),
    ),
    Role(
        name="flaky", about="503, 429, resets", manner=_badly, events=120,
        config={"retry": {"base_s": 0.1, "cap_s": 1}},
    ),
    Role(
        name="dead", about="dead at first", manner=_well, events=120, late=True,
        config={"retry": {"base_s": 0.25, "cap_s": 1}},
    ),
)  # fmt: skip


class DemoReceiver:
    """One of the cast, with its server and its record."""

    def __init__(self, role: Role, check: StandardCheck) -> None:
        self.role = role
        self.id = f"{TENANT}.{role.name}"
        self.record = Record(name=role.name, limit=role.limit)
        self.listening = False
        self.secret = "whsec_" + b64encode(secrets.token_bytes(32)).decode()
        self._key = parse_secret(self.secret, "secrets")
        self._check = check
        self._bound = socket.socket()
        self._bound.bind((HOST, 0))
        self._server: asyncio.Server | None = None

    @property
    def config(self) -> dict[str, Any]:
        """What is put for it."""
        port = self._bound.getsockname()[1]
        return {"url": f"http://{HOST}:{port}/", "secrets": [self.secret], **self.role.config}

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
        reply = self.role.manner(len(self.record.arrivals) + 1)
        self.record.arrivals.append(self._arrival(at, received, reply))
        return reply

    def _arrival(self, at: float, received: Received, reply: Reply | Reset) -> Arrival:
        headers, body = received.headers, received.body
        by_standard = self._check(self.secret, body, headers)
        problems = verification.problems(headers, body, [self._key], time.time())
        throttled = isinstance(reply, Reply) and reply.status == 429
        return Arrival(
            at=at,
            event_id=headers.get("webhook-id", ""),
            sequence=_number(headers.get("angarium-sequence")),
            attempt=_number(headers.get("angarium-attempt")),
            digest=hashlib.sha256(body).digest(),
            signature=headers.get("angarium-signature", ""),
            status=reply.status if isinstance(reply, Reply) else None,
            retry_after_s=RETRY_AFTER_S if throttled else 0,
            problems=(*([by_standard] if by_standard else []), *problems),
        )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


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


class Lateness:
    """By how much this process is late: a timer that should have rung says how long it had to wait.

    What comes while the event loop is busy is noted too late by as much.
    """

    EVERY_S = 0.01

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            due = time.monotonic() + self.EVERY_S
            await asyncio.sleep(self.EVERY_S)
            self.worst_s = max(self.worst_s, time.monotonic() - due)
