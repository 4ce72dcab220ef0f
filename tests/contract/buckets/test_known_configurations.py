"""The configuration in force, for any contents of the bucket and any way to learn of a change."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from actors.configuration.parsing import DOCUMENT_MAX
from actors.configuration.policy import Policy, Rate
from actors.errors import InvalidPolicy, Unavailable
from actors.ports import Absent, Invalid, Removal
from streams.buckets.known_configurations import KnownConfigurations, subscriptions_of
from streams.buckets.stored_configurations import StoredConfigurations
from streams.installation.topology import HEADER_ROOM, Names
from streams.nats.answers import Refused
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from tests.contract.buckets.configurations import RECEIVER, URL, put, raw, remove, stored
from tests.support.waiting import until


@pytest.fixture
async def configurations(js: JetStream, names: Names) -> AsyncIterator[KnownConfigurations]:
    configurations = KnownConfigurations(js, names)
    await configurations.start()
    yield configurations
    await configurations.stop()


async def test_existing_configurations_are_known_at_the_start(js: JetStream, names: Names) -> None:
    await put(js, names, raw(timeout_s=3))
    configurations = KnownConfigurations(js, names)
    await configurations.start()
    policy = configurations.policy(RECEIVER)
    assert policy is not None
    assert (policy.url, policy.timeout_s) == (URL, 3)
    assert configurations.is_known(RECEIVER)
    assert configurations.problems(RECEIVER) == ()
    assert configurations.policy("acme.other") is None
    assert not configurations.is_known("acme.other")
    await configurations.stop()


async def test_a_change_is_reported_once(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    told: list[str] = []
    configurations.on_change(told.append)
    await put(js, names, raw())
    await until(lambda: told == [RECEIVER])
    before = configurations.policy(RECEIVER)
    await put(js, names, raw())
    await put(js, names, raw(paused=True))
    await until(lambda: len(told) == 2)
    assert told == [RECEIVER] * 2
    after = configurations.policy(RECEIVER)
    assert before is not None
    assert after is not None
    assert (before.paused, after.paused) == (False, True)


async def test_an_equal_configuration_is_the_same_one(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    await put(js, names, raw())
    await until(lambda: configurations.is_known(RECEIVER))
    before = configurations.policy(RECEIVER)
    await put(js, names, raw(timeout_s=15))
    assert await configurations.confirm(RECEIVER) is before


async def test_the_revision_is_that_of_the_configuration_in_force(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    assert configurations.revision(RECEIVER) == 0
    await put(js, names, raw())
    await put(js, names, raw(paused=True))
    await put(js, names, b"{")
    await configurations.catch_up()
    assert configurations.revision(RECEIVER) == 2


async def test_an_invalid_one_is_reported_and_the_last_valid_one_stays(
    js: JetStream, names: Names, configurations: KnownConfigurations, caplog: pytest.LogCaptureFixture
) -> None:
    await put(js, names, raw())
    await put(js, names, b'{"url": "ftp://x", "headers": {"x": "whsec_secret"}}')
    await until(lambda: configurations.problems(RECEIVER) != ())
    assert configurations.problems(RECEIVER)[0].startswith("url: must begin with https://")
    policy = configurations.policy(RECEIVER)
    assert policy is not None
    assert policy.url == URL
    assert await configurations.confirm(RECEIVER) is policy
    assert "receiver.invalid" in [record.message for record in caplog.records]
    assert "whsec_secret" not in caplog.text
    await put(js, names, raw(timeout_s=1))
    await until(lambda: configurations.problems(RECEIVER) == ())


async def test_a_node_that_starts_later_finds_the_last_valid_configuration(
    js: JetStream, names: Names
) -> None:
    await put(js, names, raw())
    for _ in range(3):
        await put(js, names, b"not json")
    configurations = KnownConfigurations(js, names)
    await configurations.start()
    policy = configurations.policy(RECEIVER)
    assert policy is not None
    assert policy.url == URL
    assert configurations.problems(RECEIVER)[0].startswith("configuration: not valid JSON")
    await configurations.stop()


async def test_concurrent_catch_ups_share_one_later_request(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    configurations, asked = KnownConfigurations(js, names), 0
    last_message = js.last_message

    async def count(*args: Any) -> Any:
        nonlocal asked
        asked += 1
        return await last_message(*args)

    monkeypatch.setattr(js, "last_message", count)
    first = asyncio.ensure_future(configurations.catch_up())
    await until(lambda: asked == 1)
    await put(js, names, raw())
    await asyncio.gather(*(configurations.catch_up() for _ in range(50)))
    assert configurations.has_record(RECEIVER)
    assert not configurations.has_record("acme.nobody")
    await first
    assert asked <= 4
    await remove(js, names)
    await configurations.catch_up()
    assert configurations.has_record(RECEIVER)


async def test_a_configuration_that_is_too_large_is_refused_by_the_server(
    js: JetStream, names: Names
) -> None:
    await put(js, names, raw().ljust(DOCUMENT_MAX), **{"x-anything": "h" * 4000})
    too_large = await js.publish(names.receiver(RECEIVER), raw().ljust(DOCUMENT_MAX + HEADER_ROOM + 1))
    assert isinstance(too_large, Refused)


async def test_an_invalid_configuration_in_an_older_bucket_replaces_no_valid_one(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    await js.stream_update((await stream_info(js, names.receivers)).config | {"max_msg_size": -1})
    large = raw(secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] * 15_000)
    await put(js, names, raw())
    for receiver in (RECEIVER, "acme.never"):
        await put(js, names, large, receiver)
        problem = f"configuration: is {len(large)} bytes, at most {DOCUMENT_MAX}; "
        await until(lambda: bool(configurations.problems(receiver)))  # noqa: B023
        assert configurations.problems(receiver)[0].startswith(problem)
    policy = configurations.policy(RECEIVER)
    assert policy is not None
    assert policy.url == URL
    assert isinstance(await configurations.confirm("acme.never"), Invalid)
    with pytest.raises(InvalidPolicy, match="at most 65536; shorten it"):
        await configurations.stored.put(RECEIVER, large)


@pytest.mark.parametrize("value", [b"", b"null", b"[]", b"\xff", b"{}", b"[" * 60_000, b'{"url": 1}'])
async def test_a_configuration_that_never_was_valid_is_invalid(
    js: JetStream, names: Names, configurations: KnownConfigurations, value: bytes
) -> None:
    await put(js, names, value)
    await until(lambda: configurations.is_known(RECEIVER))
    assert configurations.policy(RECEIVER) is None
    answer = await configurations.confirm(RECEIVER)
    assert isinstance(answer, Invalid)
    assert answer.problems == configurations.problems(RECEIVER) != ()


async def test_unknown_members_are_ignored_with_a_warning(
    js: JetStream, names: Names, configurations: KnownConfigurations, caplog: pytest.LogCaptureFixture
) -> None:
    await put(js, names, raw(later=1))
    await until(lambda: configurations.policy(RECEIVER) is not None)
    assert configurations.problems(RECEIVER) == ()
    assert "receiver.doubtful" in [record.message for record in caplog.records]


async def test_the_installations_rate_holds_where_none_is_given(js: JetStream, names: Names) -> None:
    await put(js, names, raw())
    await put(js, names, raw(rate={"limit": 3}), "acme.own")
    configurations = KnownConfigurations(js, names, Rate(limit=7))
    await configurations.start()
    policies = [configurations.policy(RECEIVER), configurations.policy("acme.own")]
    assert [policy and policy.rate for policy in policies] == [Rate(limit=7), Rate(limit=3)]
    await configurations.stop()


async def test_a_rate_in_words_is_in_force_wherever_it_was_put(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    await put(js, names, raw(rate="300/min"))
    await configurations.stored.put("acme.checked", raw(rate="10/s"))
    for name, rate in ((RECEIVER, Rate(limit=300, per="minute")), ("acme.checked", Rate(limit=10))):
        policy = await configurations.confirm(name)
        assert isinstance(policy, Policy)
        assert policy.rate == rate


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
async def test_a_removed_one_is_absent_and_may_come_back(
    js: JetStream, names: Names, configurations: KnownConfigurations, operation: str
) -> None:
    told: list[str] = []
    await put(js, names, raw())
    await until(lambda: configurations.is_known(RECEIVER))
    configurations.on_change(told.append)
    await remove(js, names, operation)
    await until(lambda: not configurations.is_known(RECEIVER))
    assert configurations.policy(RECEIVER) is None
    assert await configurations.confirm(RECEIVER) == Absent()
    await put(js, names, raw())
    await until(lambda: configurations.policy(RECEIVER) is not None)
    assert told == [RECEIVER] * 2


@pytest.mark.parametrize("following", [True, False])
async def test_a_removal_is_known_even_if_the_receiver_was_put_again_at_once(
    js: JetStream, names: Names, following: bool
) -> None:
    """Our own put drops the marker of the removal, but its value mentions the removal, also after an edit."""
    if following:
        configurations = KnownConfigurations(js, names)
        await configurations.start()
    tool = StoredConfigurations(js, names)
    stored(await tool.put(RECEIVER, raw()))
    removal = stored(await tool.delete(RECEIVER))
    stored(await tool.put(RECEIVER, raw()))
    await tool.set_paused(RECEIVER, True)
    last = stored(await tool.put(RECEIVER, raw(timeout_s=3)))
    if not following:
        configurations = KnownConfigurations(js, names)
        await configurations.start()
    await until(lambda: configurations.applied >= last)
    found = configurations.removal(RECEIVER)
    assert found is not None
    assert found.revision == removal
    assert found.at == pytest.approx(time.time(), abs=60)
    assert await tool.last_removal(RECEIVER) is not None
    await configurations.stop()


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
async def test_a_removal_by_other_clients_is_known_from_what_they_left(
    js: JetStream, names: Names, operation: str
) -> None:
    await put(js, names, raw())
    removal = await remove(js, names, operation)
    await put(js, names, raw())
    last = await put(js, names, raw(timeout_s=3))
    for ask in (True, False):
        configurations = KnownConfigurations(js, names)
        if ask:
            assert isinstance(await configurations.confirm(RECEIVER), Policy)
        else:
            await configurations.start()
        found = configurations.removal(RECEIVER)
        assert found is not None
        assert found.revision == removal
        await configurations.stop()
    assert await configurations.stored.set_paused(RECEIVER, True) is None
    (message,) = (await js.read(names.receivers, names.receiver(RECEIVER), last + 1)).messages
    assert message.headers["Angarium-Removed"].split()[0] == str(removal)


async def test_a_removal_known_only_to_the_leader_is_reported(js: JetStream, names: Names) -> None:
    """A node that keeps the last removal hears of it, also where the configuration is the same again."""
    configurations = KnownConfigurations(js, names)
    await put(js, names, raw())
    await configurations.confirm(RECEIVER)
    told: list[Removal | None] = []
    configurations.on_change(lambda receiver: told.append(configurations.removal(receiver)))
    removal = await remove(js, names)
    await put(js, names, raw())
    await configurations.confirm(RECEIVER)
    assert [each.revision for each in told if each] == [removal]


async def test_news_of_a_removal_that_come_late_are_told(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    told: list[Removal | None] = []
    configurations.on_change(lambda receiver: told.append(configurations.removal(receiver)))
    stored(await configurations.stored.put(RECEIVER, raw()))
    await until(lambda: len(told) == 1)
    removal = stored(await configurations.stored.delete(RECEIVER))
    stored(await configurations.stored.put(RECEIVER, raw()))
    await until(lambda: bool(told[-1]))
    assert told[0] is None
    found = configurations.removal(RECEIVER)
    assert found is not None
    assert found.revision == removal


async def test_keys_that_name_no_receiver_are_passed_over(
    js: JetStream, names: Names, configurations: KnownConfigurations, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("lonely", "a.b.c", "acme._x"):
        await put(js, names, raw(), key)
    await put(js, names, raw())
    await until(lambda: configurations.is_known(RECEIVER))
    assert not configurations.is_known("acme._x")
    assert [record.message for record in caplog.records].count("receiver.misnamed") == 3


async def test_the_leader_is_asked_if_no_bucket_is_followed(js: JetStream, names: Names) -> None:
    configurations = KnownConfigurations(js, names)
    assert await configurations.confirm(RECEIVER) == Absent()
    await put(js, names, raw())
    policy = await configurations.confirm(RECEIVER)
    assert isinstance(policy, Policy)
    assert configurations.policy(RECEIVER) is policy
    await remove(js, names)
    assert await configurations.confirm(RECEIVER) == Absent()
    assert configurations.policy(RECEIVER) is None


async def test_the_leaders_answer_is_not_undone_by_older_news(js: JetStream, names: Names) -> None:
    await put(js, names, raw(timeout_s=1))
    await put(js, names, raw(timeout_s=2))
    await put(js, names, b"invalid")
    configurations = KnownConfigurations(js, names)
    assert isinstance(await configurations.confirm(RECEIVER), Invalid)
    seen: list[float | None] = []
    configurations.on_change(lambda _: seen.append(_timeout(configurations)))
    await configurations.start()
    assert seen == [1, 2]
    assert configurations.problems(RECEIVER)[0].startswith("configuration: not valid JSON")
    await configurations.stop()


async def test_a_removal_that_the_leader_knew_first_is_not_undone(js: JetStream, names: Names) -> None:
    await put(js, names, raw())
    await remove(js, names)
    configurations = KnownConfigurations(js, names)
    assert await configurations.confirm(RECEIVER) == Absent()
    changes: list[bool] = []
    configurations.on_change(lambda receiver: changes.append(configurations.is_known(receiver)))
    await configurations.start()
    assert changes == []
    assert not configurations.is_known(RECEIVER)
    await configurations.stop()


def _timeout(configurations: KnownConfigurations) -> float | None:
    policy = configurations.policy(RECEIVER)
    return policy.timeout_s if policy else None


async def test_a_key_that_was_wiped_out_is_absent_once_the_leader_is_asked(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    position = await put(js, names, raw())
    await until(lambda: configurations.is_known(RECEIVER))
    await js.purge(names.receivers, position + 1)
    told: list[str] = []
    configurations.on_change(told.append)
    assert await configurations.confirm(RECEIVER) == Absent()
    assert (configurations.is_known(RECEIVER), told) == (False, [RECEIVER])


async def test_pausing_edits_one_member_and_keeps_the_rest(
    js: JetStream, names: Names, configurations: KnownConfigurations
) -> None:
    await put(js, names, raw(later={"a": [1, 2.5]}, rate={"limit": 3}))
    assert await configurations.stored.set_paused(RECEIVER, True) is None
    policy = await configurations.confirm(RECEIVER)
    assert isinstance(policy, Policy)
    assert policy.paused
    assert configurations.policy(RECEIVER) is policy
    found = await configurations.stored.get(RECEIVER)
    assert found is not None
    assert json.loads(found.raw) == json.loads(raw(later={"a": [1, 2.5]}, rate={"limit": 3}, paused=True))
    await configurations.stored.set_paused(RECEIVER, True)
    again = await configurations.stored.get(RECEIVER)
    assert again == found
    assert await configurations.stored.set_paused(RECEIVER, False) is None
    policy = await configurations.confirm(RECEIVER)
    assert isinstance(policy, Policy)
    assert not policy.paused


async def test_without_a_bucket_the_answer_is_unavailable(js: JetStream, prefix: str) -> None:
    configurations = KnownConfigurations(js, Names(prefix))
    with pytest.raises(Unavailable):
        await configurations.confirm(RECEIVER)
    with pytest.raises(Unavailable):
        await configurations.stored.get(RECEIVER)


async def test_a_question_that_fails_after_its_callers_gave_up_is_not_a_defect(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, fails = asyncio.Event(), asyncio.Event()

    async def last_message(*_: object) -> None:
        asked.set()
        await fails.wait()
        raise Unavailable("NATS is away")

    monkeypatch.setattr(js, "last_message", last_message)
    reported = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    before = asyncio.all_tasks()
    configurations = KnownConfigurations(js, names)
    caller = asyncio.create_task(configurations.catch_up())
    await asked.wait()
    (question,) = asyncio.all_tasks() - before - {caller}
    caller.cancel()
    await asyncio.wait({caller})
    fails.set()
    await asyncio.wait({question})
    del caller, question, configurations
    gc.collect()
    assert not reported


def _without_eu(receiver: str, policy: Policy) -> tuple[str, ...]:
    return ("proxy: no eu",) if policy.proxy == "eu" else ()


async def test_a_policy_that_its_node_cannot_use_keeps_its_subscriptions(
    js: JetStream, names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    configurations = KnownConfigurations(js, names, unusable=_without_eu)
    told: list[str] = []
    configurations.on_change(told.append)
    subscriptions = subscriptions_of(configurations)
    await put(js, names, raw(events=["a"]))
    await configurations.start()
    assert configurations.policy(RECEIVER) is not None
    await put(js, names, raw(events=["b"], proxy="eu"))
    await until(lambda: configurations.problems(RECEIVER) == ("proxy: no eu",))
    assert configurations.policy(RECEIVER) is None
    assert configurations.is_known(RECEIVER)
    assert await configurations.confirm(RECEIVER) == Invalid(("proxy: no eu",))
    assert [subscriptions.match("acme", each) for each in ("a", "b")] == [(), (RECEIVER,)]
    assert [each.message for each in caplog.records] == ["receiver.invalid"]
    await put(js, names, raw(events=["b"]))
    await until(lambda: configurations.policy(RECEIVER) is not None)
    assert configurations.problems(RECEIVER) == ()
    await configurations.stop()


async def test_an_older_policy_takes_the_place_of_no_policy_that_its_node_cannot_use(
    js: JetStream, names: Names
) -> None:
    await put(js, names, raw())
    await put(js, names, raw(proxy="eu"))
    configurations = KnownConfigurations(js, names, unusable=_without_eu)
    await configurations.start()
    assert configurations.policy(RECEIVER) is None
    assert await configurations.confirm(RECEIVER) == Invalid(("proxy: no eu",))
    await put(js, names, b"{")
    await until(lambda: len(configurations.problems(RECEIVER)) == 2)
    assert configurations.policy(RECEIVER) is None
    await configurations.stop()
