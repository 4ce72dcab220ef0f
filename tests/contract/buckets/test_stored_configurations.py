"""The configurations in their bucket: put, listed, paused and removed."""

import asyncio
import json

import pytest

from actors.configuration.policy import Policy
from actors.errors import InvalidName, InvalidPolicy
from actors.ports import Absent, Invalid
from streams.buckets.known_configurations import KnownConfigurations
from streams.buckets.stored_configurations import Configuration, StoredConfigurations
from streams.installation.topology import Names
from streams.nats.answers import Refused, Stored
from streams.nats.jetstream import JetStream
from tests.contract.buckets.configurations import RECEIVER, put, raw, stored


async def test_a_configuration_that_is_put_is_checked_strictly(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    with pytest.raises(InvalidPolicy, match="later: unknown member"):
        await configurations.put(RECEIVER, raw(later=1))
    with pytest.raises(InvalidName):
        await configurations.put("billing", raw())
    with pytest.raises(InvalidName):
        await configurations.delete("acme._x")
    assert await configurations.keys() == []


async def test_a_put_may_expect_a_revision(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    first = stored(await configurations.put(RECEIVER, raw(), 0))
    assert await configurations.get(RECEIVER) == Configuration(raw(), first)
    assert isinstance(await configurations.put(RECEIVER, raw(), 0), Refused)
    second = stored(await configurations.put(RECEIVER, raw(paused=True), first))
    assert await configurations.get(RECEIVER) == Configuration(raw(paused=True), second)
    stored(await configurations.delete(RECEIVER))
    assert await configurations.get(RECEIVER) is None


async def test_no_old_secret_is_left_behind(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    await put(js, names, raw(secrets=["whsec_" + "A" * 32]))
    stored(await configurations.put(RECEIVER, raw(secrets=["whsec_" + "B" * 32])))
    (message,) = (await js.read(names.receivers, names.receiver(RECEIVER), 1)).messages
    assert b"BBB" in message.data
    stored(await configurations.delete(RECEIVER))
    (message,) = (await js.read(names.receivers, names.receiver(RECEIVER), 1)).messages
    assert message.data == b""


async def test_all_configurations_are_listed(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    for name in ("c", "a", "b"):
        stored(await configurations.put(f"acme.{name}", raw()))
    stored(await configurations.put("other.a", raw()))
    stored(await configurations.delete("acme.a"))
    assert await configurations.keys() == ["acme.b", "acme.c", "other.a"]
    assert list(await configurations.all("acme")) == ["acme.b", "acme.c"]


async def test_two_who_edit_at_once_lose_nothing(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    stored(await configurations.put(RECEIVER, raw()))

    async def edit(member: str) -> None:
        while True:
            found = await configurations.get(RECEIVER)
            assert found is not None
            new = json.dumps(json.loads(found.raw) | {member: 5}).encode()
            if isinstance(await configurations.put(RECEIVER, new, found.revision), Stored):
                return

    await asyncio.gather(configurations.set_paused(RECEIVER, True), edit("timeout_s"), edit("concurrency"))
    policy = await KnownConfigurations(js, names).confirm(RECEIVER)
    assert isinstance(policy, Policy)
    assert (policy.paused, policy.timeout_s, policy.concurrency) == (True, 5, 5)


async def test_an_edit_that_is_not_possible_says_why(js: JetStream, names: Names) -> None:
    configurations = StoredConfigurations(js, names)
    assert await configurations.set_paused(RECEIVER, True) == Absent()
    await put(js, names, b"[1]")
    assert await configurations.set_paused(RECEIVER, True) == Invalid(
        ("configuration: must be a JSON object",)
    )
