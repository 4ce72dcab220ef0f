"""Budgets of tenants: a tenant whose receivers hang holds no more connections than its budget."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.pool import ConnectionLimits
from angarium.delivery.connections.tenant_budgets import TenantBudgets
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.transport import FailureKind, Response
from tests.contract.transport.conftest import LOOPBACK, answered, failed, post_to
from tests.contract.transport.receiver import OK, Peer, Receiver
from tests.support.waiting import until

CONNECTIONS, BUDGET = 6, 4
SOON_S = 0.15
TIMEOUT_S = 2.0


class HangingReceiver:
    """A receiver whose path `/hang` gets no answer until `let_go`; `held` are waiting for it."""

    def __init__(self, receiver: Receiver) -> None:
        self.port = receiver.port
        self.held = 0
        self._go = asyncio.Event()
        receiver.plays(self._script)

    def let_go(self) -> None:
        self._go.set()

    async def _script(self, peer: Peer) -> None:
        while True:
            request = await peer.request()
            if b"/hang" in request.line:
                self.held += 1
                await self._go.wait()
                self.held -= 1
            await peer.send(OK)


@pytest.fixture
async def budgets() -> TenantBudgets:
    return TenantBudgets({"wide": BUDGET}.get)


@pytest.fixture
async def limited(budgets: TenantBudgets) -> AsyncIterator[Http1Transport]:
    paths = EgressPaths(Guard(allow_http=True, allow_networks=LOOPBACK))
    made = Http1Transport(paths, limits=ConnectionLimits(connections_max=CONNECTIONS), budgets=budgets)
    yield made
    await made.close()


def posts(transport: Http1Transport, hanging: HangingReceiver, count: int) -> list[asyncio.Task[object]]:
    url = f"http://127.0.0.1:{hanging.port}/hang"
    return [
        asyncio.create_task(post_to(transport, url, receiver=f"wide.r{number}", timeout_s=30.0))
        for number in range(count)
    ]


async def test_new_receivers_that_hang_leave_connections_to_other_tenants(
    receiver: Receiver, limited: Http1Transport, budgets: TenantBudgets
) -> None:
    hanging = HangingReceiver(receiver)
    made = posts(limited, hanging, 3 * CONNECTIONS)
    await until(lambda: hanging.held == BUDGET)
    for number in range(2 * CONNECTIONS):
        url = f"http://127.0.0.1:{receiver.port}/quick"
        answered(await post_to(limited, url, receiver=f"other.r{number}", timeout_s=5.0))
    assert hanging.held == BUDGET
    hanging.let_go()
    assert all(isinstance(each, Response) for each in await asyncio.gather(*made))
    assert budgets.in_use == 0


async def test_an_attempt_without_a_turn_in_time_is_our_overload(
    receiver: Receiver, limited: Http1Transport, budgets: TenantBudgets
) -> None:
    hanging = HangingReceiver(receiver)
    made = posts(limited, hanging, BUDGET)
    await until(lambda: hanging.held == BUDGET)
    url = f"http://127.0.0.1:{receiver.port}/quick"
    failure = failed(await post_to(limited, url, receiver="wide.late", timeout_s=SOON_S))
    assert failure.kind is FailureKind.OVERLOAD
    assert "attempts_max" in failure.detail
    hanging.let_go()
    await asyncio.gather(*made)
    answered(await post_to(limited, url, receiver="wide.late", timeout_s=5.0))
    assert budgets.in_use == 0


async def test_receivers_of_a_tenant_have_their_turns_within_its_budget(
    receiver: Receiver, limited: Http1Transport
) -> None:
    """The attempts of one receiver that come first do not go before the first one of another."""
    hanging = HangingReceiver(receiver)
    made = posts(limited, hanging, BUDGET)
    await until(lambda: hanging.held == BUDGET)
    ended = list[str]()

    async def post(name: str) -> None:
        answered(await post_to(limited, f"http://127.0.0.1:{receiver.port}/quick", receiver=name))
        ended.append(name)

    waiting = [asyncio.create_task(post("wide.many")) for _ in range(20)]
    waiting.append(asyncio.create_task(post("wide.one")))
    hanging.let_go()
    await asyncio.gather(*made, *waiting)
    assert ended.index("wide.one") < 2 * BUDGET


async def test_the_wait_for_the_budget_takes_no_time_from_the_receiver(
    receiver: Receiver, limited: Http1Transport
) -> None:
    """Healthy receivers of a tenant with a small budget do not fail because of it; their latency is true."""
    held = HangingReceiver(receiver)
    made = posts(limited, held, BUDGET)
    await until(lambda: held.held == BUDGET)
    url = f"http://127.0.0.1:{receiver.port}/hang"
    late = asyncio.create_task(post_to(limited, url, receiver="wide.late", timeout_s=TIMEOUT_S))
    await asyncio.sleep(0.8 * TIMEOUT_S)
    for each in made:
        each.cancel()
    await until(lambda: len(receiver.requests) == BUDGET + 1)
    await asyncio.sleep(0.4 * TIMEOUT_S)
    held.let_go()
    assert answered(await late).latency_s < 0.8 * TIMEOUT_S
