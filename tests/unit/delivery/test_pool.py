"""The pool, with made-up connections: who gets which, in which turn, and which are closed."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angarium.delivery.connections import pool as pool_module
from angarium.delivery.connections.pool import ConnectionLimits, Key, Pool
from angarium.delivery.http_exchange.http1 import Http1Connection


class Wire:
    """A connection that does nothing by itself: a test lets it rest, and lets it be gone."""

    def __init__(self, owner: Any, _: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self.key: Key = owner.key
        self.is_usable = True

    def abort(self) -> None:
        self.is_usable = False

    def keep_idle(self) -> None:
        self._owner.keep_idle(self)

    def gone(self) -> None:
        self.is_usable = False
        self._owner.closed(self)


class World:
    """A pool, who asked it for a connection, and what each of them got."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.pool = Pool(limits)
        self.asked: list[asyncio.Task[Wire]] = []

    async def ask(self, receiver: str, host: str = "one.example") -> asyncio.Task[Wire]:
        key = Key(receiver, "http", host, 80, f"192.0.2.{len(host)}")
        self.asked.append(asyncio.create_task(self._get(key), name=host))
        await turn()
        return self.asked[-1]

    async def _get(self, key: Key) -> Wire:
        connection = self.pool.take(key) or await self.pool.wait_for_room(key, fresh=False)
        return cast(Wire, connection or await self.pool.connect(key, await self.pool.reserve(key), connected))


@pytest.fixture(autouse=True)
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "Http1Connection", Wire)
        yield


async def connected(*_: object, **__: object) -> None:
    return


async def turn() -> None:
    """Let everybody go on who can."""
    for _ in range(3):
        await asyncio.sleep(0)


def usable(*wires: Wire) -> list[bool]:
    return [wire.is_usable for wire in wires]


async def test_a_newer_attempt_cannot_take_the_room_of_the_one_that_was_called() -> None:
    world = World(ConnectionLimits(connections_max=1))
    held = (await world.ask("acme.one")).result()
    waiting = await world.ask("acme.two")
    held.gone()
    late = await world.ask("beta.late")
    assert waiting.done()
    assert not late.done()
    waiting.result().gone()
    await turn()
    assert late.done()


async def test_a_newer_attempt_cannot_take_the_connection_of_the_one_that_was_called() -> None:
    world = World(ConnectionLimits(per_host_max=1))
    held = (await world.ask("acme.one")).result()
    waiting = await world.ask("acme.one")
    held.keep_idle()
    late = await world.ask("acme.one")
    assert waiting.result() is held
    assert not late.done()
    held.keep_idle()
    await turn()
    assert late.result() is held


async def test_each_waiting_request_closes_only_one_connection() -> None:
    world = World(ConnectionLimits(connections_max=3))
    busy, other, idle = [
        (await world.ask(name)).result() for name in ("acme.busy", "acme.other", "acme.idle")
    ]
    idle.keep_idle()
    waiting = await world.ask("beta.one")
    assert usable(idle, busy, other) == [False, True, True]
    busy.keep_idle()
    assert usable(idle, busy, other) == [False, True, True]
    second = await world.ask("beta.two")
    assert usable(idle, busy, other) == [False, False, True]
    third = await world.ask("beta.three")
    other.keep_idle()
    assert usable(idle, busy, other) == [False, False, False]
    for wire, asked in ((idle, waiting), (busy, second), (other, third)):
        assert not asked.done()
        wire.gone()
        await turn()
        assert asked.done()


async def test_the_longest_idle_connection_is_closed_wherever_it_leads() -> None:
    world = World(ConnectionLimits(connections_max=3, per_host_max=2))
    first, second, third = [
        (await world.ask(name, host)).result()
        for name, host in (("acme.a", "one.example"), ("acme.b", "three.example"), ("acme.c", "one.example"))
    ]
    for wire in (second, third, first):
        wire.keep_idle()
    await world.ask("acme.d", "one.example")
    assert usable(second, third, first) == [True, False, True]
    await world.ask("acme.e", "five.example")
    third.gone()
    await turn()
    assert usable(second, first) == [False, True]


async def test_a_waiter_that_gives_up_when_it_is_called_passes_its_turn_on() -> None:
    world = World(ConnectionLimits(connections_max=1))
    held = (await world.ask("acme.one")).result()
    given_up, waiting, own, last = [
        await world.ask(name) for name in ("acme.two", "acme.three", "acme.one", "acme.one")
    ]
    held.gone()
    given_up.cancel()
    await turn()
    another = waiting.result()
    another.gone()
    await turn()
    held = own.result()
    held.keep_idle()
    last.cancel()
    await turn()
    assert world.pool.take(held.key) is cast(Http1Connection, held)
    held.gone()
    assert world.pool.open_count == 0


RECEIVERS = st.tuples(st.sampled_from(["a.1", "a.2", "b.1", "c.1"]), st.sampled_from(["one", "three"]))
ACTS = st.one_of(
    st.tuples(st.just("ask"), RECEIVERS),
    st.tuples(st.sampled_from(["rest", "rest", "gone", "cancel"]), st.integers(0, 9)),
)


class RandomActs:
    """Acts on a pool, and checks after each act what always has to hold."""

    def __init__(self) -> None:
        self.world = World(ConnectionLimits(connections_max=4, per_host_max=3))
        self.held: list[Wire] = []
        self.wires: set[Wire] = set()

    async def act(self, what: str, which: Any) -> None:
        waiting = self.waiting()
        if what == "ask":
            await self.world.ask(*which)
        elif what == "rest" and self.held:
            self.held.pop(which % len(self.held)).keep_idle()
        elif what == "gone" and self.wires:
            wire = sorted(self.wires, key=id)[which % len(self.wires)]
            if wire in self.held:
                self.held.remove(wire)
            self.wires.remove(wire)
            wire.gone()
        elif what == "cancel" and waiting:
            waiting[which % len(waiting)].cancel()
        await turn()
        self.collect()
        self.check()

    def waiting(self) -> list[asyncio.Task[Wire]]:
        return [task for task in self.world.asked if not task.done()]

    def collect(self) -> None:
        for task in [task for task in self.world.asked if task.done()]:
            self.world.asked.remove(task)
            if not task.cancelled():
                assert task.result() not in self.held
                self.held.append(task.result())
                self.wires.add(task.result())

    def check(self) -> None:
        closing = sum(not wire.is_usable for wire in self.wires)
        assert self.world.pool.open_count == len(self.wires) <= 4
        for host in ("one", "three"):
            here = [wire for wire in self.wires if wire.key.host == host]
            waiting = sum(task.get_name() == host for task in self.waiting())
            assert len(here) <= 3
            assert not waiting or len(here) == 3 or len(self.wires) == 4
            if waiting > closing + sum(not wire.is_usable for wire in here):
                assert all(wire in self.held or not wire.is_usable for wire in here)

    async def end(self) -> None:
        """Let all connections go: each waiting attempt gets one, and nothing is left over."""
        while self.wires:
            await self.act("gone", 0)
        assert not self.waiting()
        assert self.world.pool.open_count == 0
        await self.world.pool.close()


@settings(max_examples=100, deadline=None)
@given(acts=st.lists(ACTS, max_size=60))
def test_bounds_hold_and_no_attempt_waits_without_need(acts: list[tuple[str, Any]]) -> None:
    async def run() -> None:
        random_acts = RandomActs()
        for act in acts:
            await random_acts.act(*act)
        await random_acts.end()

    asyncio.run(run())
