"""Dropping the plans of replays that ended long ago."""

import time

import msgspec
import pytest

from streams.buckets import expired_keys
from streams.installation.topology import Names
from streams.nats.answers import Stored
from streams.nats.jetstream import JetStream
from streams.resending.ended_replays import SHOWN_FOR_S, drop_ended_replays
from streams.resending.replay_lock import VERSION, ReplayPlan

LATER_S = SHOWN_FOR_S + 60.0


def plan(*, unfinished: bool = False, held: bool = False) -> bytes:
    return msgspec.json.encode(
        ReplayPlan(v=VERSION, run="r", step=1, at=0.0, held=held, unfinished=unfinished)
    )


async def store(js: JetStream, subject: str, data: bytes) -> None:
    assert isinstance(await js.publish(subject, data), Stored)


async def test_only_plans_that_ended_long_ago_are_dropped(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {
        "acme.ended": plan(),
        "acme.held": plan(held=True),
        "acme.unfinished": plan(unfinished=True),
        "acme.newer": b'{"v": 99}',
        "other.ended": plan(),
    }
    for receiver, data in plans.items():
        await store(js, names.actor_keys.replay(receiver), data)

    async def left() -> list[str]:
        found = {each: await js.last_message(names.actors, names.actor_keys.replay(each)) for each in plans}
        return [receiver for receiver, message in found.items() if message is not None]

    assert await drop_ended_replays(js, names, time.time()) is None
    assert await left() == list(plans)
    monkeypatch.setattr(expired_keys, "CHECKED_MAX", 3)
    after = await drop_ended_replays(js, names, time.time() + LATER_S)
    assert after is not None
    assert await left() == list(plans)[1:]
    assert await drop_ended_replays(js, names, time.time() + LATER_S, after) is None
    assert await left() == ["acme.held", "acme.unfinished", "acme.newer"]


async def test_a_plan_that_is_stored_meanwhile_stays(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, purge = names.actor_keys.replay("acme.again"), js.purge_subject
    await store(js, subject, plan())

    async def purge_late(stream: str, which: str, last: int | None = None) -> int:
        await store(js, subject, plan(unfinished=True))
        return await purge(stream, which, last)

    monkeypatch.setattr(js, "purge_subject", purge_late)
    await drop_ended_replays(js, names, time.time() + LATER_S)
    found = await js.last_message(names.actors, subject)
    assert found is not None
    assert found.data == plan(unfinished=True)
