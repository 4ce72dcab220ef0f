"""Attempts that begin or expire together let other work run; none expires too early."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from unittest.mock import Mock

import pytest

from angarium.delivery.connections.expiry_per_turn import EXPIRED_IN_TURN_MAX
from angarium.delivery.connections.fair_slots import FairSlots
from angarium.delivery.connections.pool import DEFAULT_LIMITS, Key, Pool
from angarium.delivery.connections.starts_per_turn import BEGUN_IN_TURN_MAX
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.http_exchange.http1 import Exchange, Http1Connection
from angarium.delivery.http_exchange.transport import Failure, FailureKind
from tests.contract.transport.conftest import MakeTransport, post_to
from tests.contract.transport.receiver import OK

Dial = Callable[[Http1Connection], Awaitable[None]]


def started(connection: Http1Connection) -> Exchange:
    now = asyncio.get_running_loop().time()
    return connection.start(b"POST / HTTP/1.1\r\n\r\n", lambda: True, now, now + 60)


async def test_exchanges_that_expire_together_leave_turns_for_others() -> None:
    pool, connection = Pool(DEFAULT_LIMITS), Mock(spec=Http1Connection)
    exchange: Exchange = asyncio.get_running_loop().create_future()
    for _ in range(5 * EXPIRED_IN_TURN_MAX):
        pool.expire_soon(connection, exchange)
    for turn in range(1, 6):
        await asyncio.sleep(0)
        assert connection.expire.call_count == turn * EXPIRED_IN_TURN_MAX
    await asyncio.sleep(0)
    pool.expire_soon(connection, exchange)
    await asyncio.sleep(0)
    assert connection.expire.call_count == 5 * EXPIRED_IN_TURN_MAX + 1
    await pool.close()


async def test_attempts_that_wait_in_vain_together_leave_turns_for_others() -> None:
    turns, loop = FairSlots(1, 1), asyncio.get_running_loop()
    with turns.turn("acme", "acme.first") as first:
        assert await first.begin(loop.time() + 60)
        ended: list[bool] = []

        async def wait(number: int) -> None:
            with turns.turn("acme", f"acme.r{number}") as turn:
                ended.append(await turn.begin(loop.time()))

        waiting = [asyncio.create_task(wait(number)) for number in range(5 * EXPIRED_IN_TURN_MAX)]
        while len(ended) < len(waiting):
            before = len(ended)
            await asyncio.sleep(0)
            assert len(ended) - before <= EXPIRED_IN_TURN_MAX
        await asyncio.gather(*waiting)
        assert not any(ended)


async def test_a_turn_that_comes_with_the_deadline_goes_to_the_next_attempt() -> None:
    turns, loop = FairSlots(1, 1), asyncio.get_running_loop()
    first, second, third = (turns.turn("acme", f"acme.{name}") for name in ("first", "second", "third"))
    assert await first.begin(loop.time() + 60)
    now = loop.time()
    loop.call_at(now - 0.001, first.end)
    assert not await second.begin(now)
    assert await third.begin(loop.time() + 60)
    assert not await second.begin(loop.time() + 0.01)
    third.end()
    assert await second.begin(loop.time() + 60)


async def test_a_turn_is_not_given_to_an_attempt_whose_time_is_over() -> None:
    turns, loop = FairSlots(9, 9), asyncio.get_running_loop()
    holders = [turns.turn("acme", f"acme.h{number}") for number in range(9)]
    for each in holders:
        assert await each.begin(loop.time() + 60)
    late = [turns.turn("acme", f"acme.r{number}") for number in range(20 * EXPIRED_IN_TURN_MAX)]
    waiting = [asyncio.create_task(each.begin(loop.time())) for each in late]
    assert not await waiting[0]
    for each in holders:
        each.end()
    done = sum(each.done() for each in waiting)
    while done < len(waiting):
        before = done
        await asyncio.sleep(0)
        done = sum(each.done() for each in waiting)
        assert done - before <= EXPIRED_IN_TURN_MAX
    assert not any(await asyncio.gather(*waiting))


@pytest.mark.parametrize("kind", [Http1Transport], indirect=True)
async def test_connections_that_are_opened_together_leave_turns_for_others(
    make_transport: MakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    refused = Pool.connect

    async def connect(pool: Pool, key: Key, connection: Http1Connection, dial: Dial) -> Http1Connection:
        opened.append(key.receiver)
        return await refused(pool, key, connection, dial)

    monkeypatch.setattr(Pool, "connect", connect)
    transport = make_transport()
    receivers = [f"acme.r{number}" for number in range(5 * BEGUN_IN_TURN_MAX)]
    posts = [asyncio.create_task(post_to(transport, "http://127.0.0.1:1/", receiver=r)) for r in receivers]
    turns = 0
    while len(opened) < len(receivers):
        await asyncio.sleep(0)
        turns += 1
        assert len(opened) <= turns * BEGUN_IN_TURN_MAX
    await asyncio.gather(*posts)
    assert sorted(opened) == sorted(receivers)


async def test_an_exchange_answered_before_its_turn_to_expire_does_not_end_the_next() -> None:
    connection = Http1Connection(Mock(), asyncio.get_running_loop())
    ours, theirs = socket.socketpair()
    wire = Mock(**{"is_closing.return_value": False, "get_write_buffer_size.return_value": 0})
    wire.get_extra_info = {"socket": ours}.get
    connection.connection_made(wire)
    first = started(connection)
    connection.write()
    connection.data_received(OK)
    second = started(connection)
    connection.expire(first)
    assert first.done()
    assert not second.done()
    assert not wire.abort.called
    connection.expire(second)
    outcome = second.result()
    assert isinstance(outcome, Failure)
    assert outcome.kind is FailureKind.TIMEOUT
    assert wire.abort.called
    ours.close()
    theirs.close()
