"""Deliveries of the real sender over HTTP are genuine to the kit, and its answers steer the sender."""

import asyncio
import base64
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Iterable
from ipaddress import ip_network
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
import uvicorn
from angarium_receiver import FixedWindow, MemoryNumbers, MemoryQueue, Receiver, asgi, wsgi

from actors.configuration.policy import Policy
from actors.machine.event import Event
from actors.machine.outcome import Answered, Failed, Outcome
from actors.ports import Attempt
from angarium.delivery.connections.connect import default_tls
from angarium.delivery.connections.guard import Guard
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.sender import HttpSender
from angarium.delivery.signing import public_key
from tests.support.waiting import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LONG = "whs512_" + base64.b64encode(bytes(range(64))).decode()
SEED = "whsk_" + base64.b64encode(bytes(range(32))).decode()


class Silent(WSGIRequestHandler):
    """A handler that logs nothing, and keeps connections."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...


class Application:
    """An application behind the middleware, on a free port; `orders` has what came through, as JSON."""

    def __init__(self) -> None:
        self.orders: list[Any] = []
        self.port = 0

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        self.orders.append(json.loads(environ["wsgi.input"].read()))
        start_response("200 OK", [("content-length", "2")])
        return [b"ok"]

    async def over_asgi(self, scope: Any, receive: Any, send: Any) -> None:
        self.orders.append(json.loads((await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


class SenderLoop:
    """The sender, and receivers that it can reach."""

    def __init__(self, sender: HttpSender) -> None:
        self.sender = sender
        self._ends: list[Any] = []

    def serve_wsgi(self, receiver: Receiver) -> Application:
        application = Application()
        app = wsgi.AngariumMiddleware(application, receiver, "/hook")
        server = make_server("127.0.0.1", 0, app, server_class=WSGIServer, handler_class=Silent)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self._ends += [server.shutdown, thread.join, server.server_close]
        application.port = server.server_port
        return application

    async def serve_asgi(self, receiver: Receiver) -> Application:
        application = Application()
        app = asgi.AngariumMiddleware(application.over_asgi, receiver, "/hook")
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
        running = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        application.port = server.servers[0].sockets[0].getsockname()[1]

        async def end() -> None:
            server.should_exit = True
            await running

        self._ends.append(end)
        return application

    async def send(
        self, application: Application, number: int | None, secret: str = SECRET, **members: Any
    ) -> Answered:
        event = Event(
            position=7, id=f"evt_{number}", stored_at=time.time(),
            type="angarium.ping" if number is None else "order.created",
            body=json.dumps({"order": number}).encode(),
        )  # fmt: skip
        policy = Policy(url=f"http://127.0.0.1:{application.port}/hook", secrets=(secret,), **members)
        outcome = await self.sender.send(Attempt(
            receiver="acme.shop", policy=policy, event=event, sequence=number, ordinal=1,
            may_start=lambda: True, shapings=(),
        ))  # fmt: skip
        assert isinstance(outcome, Answered), outcome
        return outcome

    async def ask(self, application: Application, **members: Any) -> Outcome:
        """The outcome of a handshake."""
        event = Event(
            position=0, id="handshake_1_1", stored_at=time.time(), type="angarium.handshake", body=b""
        )
        policy = Policy(url=f"http://127.0.0.1:{application.port}/hook", **members)
        return await self.sender.send(Attempt(
            receiver="acme.shop", policy=policy, event=event, sequence=None, ordinal=1,
            may_start=lambda: True, shapings=(), kind="handshake",
        ))  # fmt: skip

    async def end(self) -> None:
        for end in self._ends:
            if (ending := await asyncio.to_thread(end)) is not None:
                await ending


@pytest.fixture
async def loop() -> AsyncIterator[SenderLoop]:
    guard = Guard(allow_http=True, allow_networks=(ip_network("127.0.0.0/8"),))
    transport = Http1Transport(EgressPaths(guard, tls=default_tls()))
    loop = SenderLoop(HttpSender(transport, ids=random.Random(1)))
    yield loop
    await transport.close()
    await loop.end()


@pytest.fixture(params=["wsgi", "asgi"])
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


async def serve(loop: SenderLoop, kind: str, receiver: Receiver) -> Application:
    return loop.serve_wsgi(receiver) if kind == "wsgi" else await loop.serve_asgi(receiver)


@pytest.mark.parametrize(("secret", "text"), [(SECRET, SECRET), (LONG, LONG), (SEED, public_key(SEED) or "")])
async def test_each_kind_of_secret_is_verified(loop: SenderLoop, kind: str, secret: str, text: str) -> None:
    application = await serve(loop, kind, Receiver(text))
    assert (await loop.send(application, 1, secret)).status == 200
    assert (await loop.send(application, None, secret)).status == 204
    assert (await loop.send(application, 2, "whsec_" + "A" * 32)).status == 401
    assert application.orders == [{"order": 1}]


@pytest.mark.parametrize("secret", [SECRET, LONG])
async def test_a_handshake_is_answered_with_the_proof(loop: SenderLoop, kind: str, secret: str) -> None:
    application = await serve(loop, kind, Receiver(secret))
    assert isinstance(await loop.ask(application, secrets=(secret,), handshake="hmac"), Answered)
    refused = await loop.ask(application, secrets=("whsec_" + "A" * 32,), handshake="hmac")
    assert isinstance(refused, Failed)
    assert (refused.error, refused.detail) == ("unproven", "the hmac of the answer is wrong")


@pytest.mark.parametrize(("per_minute", "allowed"), [(None, "*"), (120, "120")])
async def test_a_handshake_of_cloudevents_is_answered_with_consent(
    loop: SenderLoop, kind: str, per_minute: int | None, allowed: str
) -> None:
    application = await serve(loop, kind, Receiver(SECRET, per_minute=per_minute))
    outcome = await loop.ask(application, handshake="cloudevents")
    assert isinstance(outcome, Answered)
    assert outcome.header("webhook-allowed-rate") == allowed


async def test_a_repeat_is_done_once(loop: SenderLoop, kind: str) -> None:
    application = await serve(loop, kind, Receiver(SECRET, numbers=MemoryNumbers()))
    assert [(await loop.send(application, number)).status for number in (1, 2, 2, 1, 3)] == [
        200,
        200,
        204,
        204,
        200,
    ]
    assert application.orders == [{"order": 1}, {"order": 2}, {"order": 3}]


async def test_the_sender_learns_from_a_limit_when_to_come_back(loop: SenderLoop, kind: str) -> None:
    limited = Receiver(SECRET, limiter=FixedWindow(1, 60.0), ticks=lambda: 90.0)
    application = await serve(loop, kind, limited)
    assert (await loop.send(application, 1)).status == 200
    refused = await loop.send(application, 2)
    assert (refused.status, refused.header("retry-after")) == (429, "30")
    assert refused.header("ratelimit") == '"default";r=0;t=30'


async def test_the_sender_learns_from_a_full_queue_to_wait(loop: SenderLoop, kind: str) -> None:
    queue = MemoryQueue(1)
    application = await serve(loop, kind, Receiver(SECRET, queue=queue))
    assert [(await loop.send(application, number)).status for number in (1, 2)] == [202, 503]
    done: list[Any] = []
    assert queue.work_one(lambda delivery: done.append((delivery.numbers, delivery.body)))
    assert done == [((1,), b'{"order": 1}')]
    assert application.orders == []
