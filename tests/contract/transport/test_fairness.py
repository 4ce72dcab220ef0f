"""Turns when connections are scarce: tenants, and the receivers of each, take turns; our transport only."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from angarium.delivery import http1_transport
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.transport import Failure, Response, Transport
from tests.contract.transport.conftest import MakeTransport, answered, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver
from tests.support.waiting import PATIENCE_S

CONNECTIONS = 4
GREEDY = [f"greedy.r{number}" for number in range(16)]
WIDE = 8
VICTIMS = ["acme.one", "beta.one", "beta.two", "gamma.one"]
TURNS = 8
"""Answers until each victim was asked: two of them are of one tenant, and the greedy one is the fourth."""


@pytest.fixture(params=[Http1Transport], ids=["http1"])
def kind(request: pytest.FixtureRequest) -> type[Http1Transport]:
    chosen: type[Http1Transport] = request.param
    return chosen


@pytest.fixture(
    params=[ConnectionLimits(connections_max=CONNECTIONS), ConnectionLimits(per_host_max=CONNECTIONS)],
    ids=["in all", "of a host"],
)
async def transport(request: pytest.FixtureRequest, make_transport: MakeTransport) -> Transport:
    return make_transport(limits=request.param)


class HeldReceivers:
    """Receivers of one host, each with a path of its own, that answer when they are told to.

    `came` are those that were asked, in order; who was asked first answers first.
    """

    def __init__(self, receiver: Receiver, transport: Transport) -> None:
        self.came: list[str] = []
        self.posting: list[asyncio.Task[Response | Failure]] = []
        self._receiver = receiver
        self._transport = transport
        self._held: list[asyncio.Event] = []
        self._news = asyncio.Event()
        receiver.plays(self._script)

    async def post(self, *receivers: str) -> None:
        """Let each be posted to, as soon as it has a connection."""
        for receiver in receivers:
            url = f"http://127.0.0.1:{self._receiver.port}/{receiver}"
            self.posting.append(asyncio.create_task(post_to(self._transport, url, receiver=receiver)))
        await asyncio.sleep(0)

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.came) < count:
                await self._news.wait()
                self._news.clear()

    async def answer(self, count: int) -> None:
        """A number of them answer one by one, and each time the next one is asked, if there is any."""
        for _ in range(count):
            self._held.pop(0).set()
            await self.asked(min(len(self.came) + 1, len(self.posting)))

    async def _script(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            self.came.append(request.line.split()[1].decode()[1:])
            self._held.append(go := asyncio.Event())
            self._news.set()
            await go.wait()
            await peer.send(OK)


@pytest.fixture
async def held(transport: Transport, receiver: Receiver) -> AsyncIterator[HeldReceivers]:
    held = HeldReceivers(receiver, transport)
    yield held
    for posted in held.posting:
        posted.cancel()
    await asyncio.gather(*held.posting, return_exceptions=True)


async def test_wide_receivers_of_one_tenant_delay_others_by_one_answer_for_each_of_them(
    held: HeldReceivers,
) -> None:
    """16 receivers, each with 8 attempts at once, have all connections; any other receiver is next."""
    await held.post(*GREEDY * WIDE)
    await held.asked(CONNECTIONS)
    await held.post(*VICTIMS)
    await held.answer(TURNS)
    assert set(VICTIMS) <= set(held.came[CONNECTIONS:])
    await held.answer(len(held.posting) - TURNS)
    for posted in held.posting:
        answered(await posted)


async def test_a_wide_receiver_delays_another_of_its_tenant_by_one_answer(held: HeldReceivers) -> None:
    await held.post(*["acme.wide"] * 10 * CONNECTIONS)
    await held.asked(CONNECTIONS)
    await held.post("acme.narrow")
    await held.answer(2)
    assert "acme.narrow" in held.came[CONNECTIONS:]


async def test_slow_receivers_delay_slow_ones_of_other_tenants_by_one_answer_each(
    held: HeldReceivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_transport, "SLOW_EXCHANGE_S", 0.0)
    for count, receiver in enumerate([*GREEDY, *VICTIMS], 1):
        await held.post(receiver)
        await held.asked(count)
        await held.answer(1)
        answered(await held.posting[-1])
    known = len(held.came)
    await held.post(*GREEDY * WIDE)
    await held.asked(known + CONNECTIONS // 2)
    await held.post(*VICTIMS)
    await held.answer(TURNS)
    assert set(VICTIMS) <= set(held.came[known:])
