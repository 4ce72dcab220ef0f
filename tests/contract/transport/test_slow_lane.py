"""The slow lane of our own transport: slow receivers leave half of the connections to fast ones."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from angarium.delivery import http1_transport
from angarium.delivery.connections import slow_lane
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.connections.slow_lane import SlowLane
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import FailureKind, Response, Transport
from tests.contract.transport.conftest import MakeTransport, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver
from tests.support.waiting import until

SOON_S = 0.15
SLOW = [f"slow/{number}" for number in range(6)]
NEVER_S = 1e9


@pytest.fixture(params=[Http1Transport], ids=["http1"])
def kind(request: pytest.FixtureRequest) -> type[Http1Transport]:
    chosen: type[Http1Transport] = request.param
    return chosen


@pytest.fixture(
    params=[ConnectionLimits(connections_max=4), ConnectionLimits(per_host_max=4)],
    ids=["in all", "of a host"],
)
async def transport(request: pytest.FixtureRequest, make_transport: MakeTransport) -> Transport:
    return make_transport(limits=request.param)


class SlowPaths:
    """A receiver whose paths `slow/…` wait, between `hold` and `let_go`; `held` do so now."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._go = asyncio.Event()
        self._go.set()
        self.held = 0
        receiver.plays(self._script)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._receiver.port}/{path}"

    def hold(self) -> None:
        self._go.clear()

    def let_go(self) -> None:
        self._go.set()

    async def _script(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b"/slow/" in request.line:
                self.held += 1
                await self._go.wait()
                self.held -= 1
            await peer.send(OK)


@pytest.fixture
async def paths(
    transport: Transport, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SlowPaths]:
    """Each of `SLOW` is known to be slow, and none will become so any more."""
    paths = SlowPaths(receiver)
    monkeypatch.setattr(http1_transport, "SLOW_EXCHANGE_S", 0.0)
    for path in SLOW:
        answered(await post_to(transport, paths.url(path)))
    monkeypatch.setattr(http1_transport, "SLOW_EXCHANGE_S", NEVER_S)
    paths.hold()
    yield paths
    paths.let_go()


async def test_half_of_the_connections_are_left_to_the_quick(transport: Transport, paths: SlowPaths) -> None:
    slow = [asyncio.create_task(post_to(transport, paths.url(path))) for path in SLOW]
    await until(lambda: paths.held == 2)
    quick = await asyncio.gather(*(post_to(transport, paths.url("quick")) for _ in range(20)))
    assert {answered(each).status for each in quick} == {200}
    assert paths.held == 2
    paths.let_go()
    assert {answered(each).status for each in await asyncio.gather(*slow)} == {200}


async def test_a_receiver_that_gets_no_turn_in_time_has_not_been_asked(
    transport: Transport, paths: SlowPaths
) -> None:
    holding = [asyncio.create_task(post_to(transport, paths.url(path))) for path in SLOW[:2]]
    await until(lambda: paths.held == 2)
    failure = failed(await post_to(transport, paths.url(SLOW[2]), timeout_s=SOON_S))
    assert failure.kind is FailureKind.OVERLOAD
    assert paths.held == 2
    waiting = asyncio.create_task(post_to(transport, paths.url(SLOW[2])))
    given_up = asyncio.create_task(post_to(transport, paths.url(SLOW[3])))
    await asyncio.sleep(0)
    given_up.cancel()
    paths.let_go()
    for each in (*holding, waiting):
        assert isinstance(await each, Response)


async def test_a_target_that_answers_quickly_is_no_longer_slow(
    transport: Transport, paths: SlowPaths
) -> None:
    paths.let_go()
    for path in SLOW[:4]:
        answered(await post_to(transport, paths.url(path)))
    paths.hold()
    asked = [asyncio.create_task(post_to(transport, paths.url(path))) for path in SLOW[:4]]
    await until(lambda: paths.held == 4)
    paths.let_go()
    await asyncio.gather(*asked)


async def test_a_receiver_is_not_slow_because_another_one_with_its_url_is(
    transport: Transport, paths: SlowPaths
) -> None:
    """Any tenant may enter the URL of another, with a timeout that is too short for any answer."""
    both = [asyncio.create_task(post_to(transport, paths.url(path))) for path in SLOW[:2]]
    await until(lambda: paths.held == 2)
    own = asyncio.create_task(post_to(transport, paths.url(SLOW[0]), receiver="victim.hook"))
    await until(lambda: paths.held == 3)
    paths.let_go()
    assert {answered(each).status for each in await asyncio.gather(own, *both)} == {200}


def test_the_remembered_receivers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_lane, "SLOW_RECEIVERS_MAX", 2)
    lane, target = SlowLane(ConnectionLimits()), parse_target("https://example.com/")
    receivers = [f"acme.{number}" for number in range(3)]
    for receiver in (*receivers, receivers[2]):
        lane.learn(receiver, target, slow=True)
    assert [lane.has(receiver, target) for receiver in receivers] == [False, True, True]
