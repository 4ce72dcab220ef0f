"""Setting up: what is created works, what exists stays as it is, what would break a promise is refused."""

import asyncio
from typing import Any

import msgspec
import pytest

from actors.errors import Unavailable
from streams.installation.partitions import partition_of, shard_of
from streams.installation.requirements import Mismatch
from streams.installation.setup import check, setup
from streams.installation.topology import STAMP_SHARDS, STAMP_VERSION, Installation, streams
from streams.nats.answers import Refused, Stored, StreamInfo
from streams.nats.errors import ApiError, SetupError
from streams.nats.jetstream import JetStream
from tests.contract.support.servers import Server

MIB = 1 << 20


@pytest.fixture
def installation(prefix: str) -> Installation:
    """Small: the tests of one server share its disk."""
    return Installation(prefix=prefix, shards=4, max_bytes=64 * MIB)


async def info(js: JetStream, stream: str) -> StreamInfo:
    found = await js.stream_info(stream)
    assert found is not None
    return found


async def test_everything_is_made_once(js: JetStream, installation: Installation, prefix: str) -> None:
    names = installation.names
    upper = prefix.upper()
    assert await setup(js, installation) == [
        f"stream {upper}_EVENTS of {prefix}.events.*.>",
        f"stream {upper}_DELIVERIES of {prefix}.deliver.*.*",
        f"stream {upper}_JOURNAL of {prefix}.journal.*",
        f"stream {upper}_DEAD of {prefix}.dead.*.*",
        f"stream KV_{prefix}_receivers of $KV.{prefix}_receivers.>",
        f"stream KV_{prefix}_actors of $KV.{prefix}_actors.>",
        f"stream KV_{prefix}_nodes of $KV.{prefix}_nodes.>",
        f"stream KV_{prefix}_tokens of $KV.{prefix}_tokens.>",
        f"stream {upper}_LATER of {prefix}.later.*.*.*.*.*.*.*.*",
    ]
    created = [(await info(js, name)).created for name in names.streams]
    assert await setup(js, installation) == []
    assert await check(js, installation) == []
    assert [(await info(js, name)).created for name in names.streams] == created


async def test_two_at_the_same_time(server: Server, js: JetStream, installation: Installation) -> None:
    wire = await server.connect("the other")
    other = JetStream(wire)
    await other.start()
    await asyncio.gather(setup(js, installation), setup(other, installation))
    assert await check(js, installation) == []
    await other.stop()
    await wire.close()


async def test_only_missing_streams_are_created(js: JetStream, installation: Installation) -> None:
    names = installation.names
    await setup(js, installation)
    await js.request(f"$JS.API.STREAM.DELETE.{names.dead_letters}", b"")
    assert [str(problem) for problem in await check(js, installation)] == [
        f"stream {names.dead_letters} is missing: run angarium setup, or correct the prefix {names.prefix} "
        "(ANGARIUM_PREFIX)",
    ]
    assert await setup(js, installation) == [
        f"stream {names.dead_letters} of {installation.prefix}.dead.*.*",
    ]


async def test_an_event_is_stored_in_its_receivers_shard(js: JetStream, installation: Installation) -> None:
    names = installation.names
    await setup(js, installation)
    for tenant, name in (("acme", "billing"), ("acme", "crm"), ("Other-1", "billing_2")):
        receiver = f"{tenant}.{name}"
        shard, partition = shard_of(tenant, name, 4), partition_of(tenant, 4)
        assert isinstance(await js.publish(names.publish_to(receiver), b"d"), Stored)
        assert isinstance(await js.publish(names.publish_event(tenant, "order.created.eu"), b"e"), Stored)
        delivery = await js.last_message(names.deliveries, names.delivery(shard, receiver))
        event = await js.last_message(names.events, names.event(partition, tenant, "order.created.eu"))
        assert delivery is not None
        assert event is not None


async def test_bodies_fit_wherever_they_go(js: JetStream, installation: Installation) -> None:
    """The streams leave room for a producer's headers, and for the headers that each copy adds."""
    names = installation.names
    await setup(js, installation)
    body, headers = bytes(installation.max_body), {"H": "x" * 8000}
    assert isinstance(await js.publish(names.publish_event("a", "t"), body, headers), Stored)
    copied = headers | {"Copy": "x" * 8000}
    assert isinstance(await js.publish(names.publish_to("a.b"), body, copied), Stored)
    dead = copied | {"Dead": "x" * 8000}
    assert isinstance(await js.publish(names.dead("a.b"), body, dead), Stored)
    for too_large in (names.publish_event("a", "t"), names.publish_to("a.b"), names.dead("a.b")):
        assert isinstance(await js.publish(too_large, body + bytes(25_000)), Refused)


async def test_the_journal_and_the_snapshots_can_be_fenced(js: JetStream, installation: Installation) -> None:
    names = installation.names
    await setup(js, installation)
    last = "Nats-Expected-Last-Subject-Sequence"
    assert await js.publish(names.journal_of(3), b"{}", {last: "0"}) == Stored(1)
    assert await js.publish(names.actor_keys.owner(3), b"{}", {last: "0"}) == Stored(1)
    fence = {last: "1", f"{last}-Subject": names.actor_keys.owner(3)}
    assert await js.publish(names.actor_keys.actor(3, "a.b"), b"{}", fence) == Stored(2)
    assert await js.publish(names.actor_keys.checkpoint(3), b"{}", fence) == Stored(3)
    assert await js.subjects(names.actors, f"$KV.{installation.prefix}_actors.3.*") == {
        names.actor_keys.owner(3): 1,
        names.actor_keys.checkpoint(3): 1,
    }


async def test_a_node_shows_itself_for_a_while(js: JetStream, installation: Installation) -> None:
    await setup(js, installation)
    answer = await js.publish(installation.names.node("n1"), b"{}", {"Nats-TTL": "2s"})
    assert answer == Stored(1)


async def test_an_installation_without_a_stamp_is_stamped(js: JetStream, installation: Installation) -> None:
    config = streams(installation)[0]
    await js.stream_create(config | {"metadata": {"owner": "us"}})
    made = await setup(js, installation)
    assert f"stamp of stream {installation.names.events}" in made
    metadata = (await info(js, installation.names.events)).config["metadata"]
    assert (metadata[STAMP_SHARDS], metadata[STAMP_VERSION], metadata["owner"]) == ("4", "2", "us")
    assert await setup(js, installation) == []


async def test_limits_that_were_widened_are_left_alone(js: JetStream, installation: Installation) -> None:
    await setup(js, installation)
    wider = {"max_bytes": 128 * MIB, "max_age": 0, "max_msg_size": MIB, "duplicate_window": 600 * 10**9}
    config = (await info(js, installation.names.deliveries)).config | wider
    await js.stream_update(config)
    assert await setup(js, installation) == []
    after = (await info(js, installation.names.deliveries)).config
    assert {name: after[name] for name in wider} == wider


async def test_another_shard_count_is_refused(js: JetStream, installation: Installation) -> None:
    await setup(js, installation)
    with pytest.raises(SetupError) as refused:
        await setup(js, msgspec.structs.replace(installation, shards=8))
    assert str(refused.value).startswith(
        "the installation has 4 shards, the setting shards says 8: set it to 4 (--shards, ANGARIUM_SHARDS or "
    )
    assert "fixed for the life" in str(refused.value)


@pytest.mark.parametrize("shards", [2, 8])
async def test_a_wrong_number_of_shards_is_the_only_problem_reported(
    js: JetStream, installation: Installation, shards: int
) -> None:
    await setup(js, installation)
    [problem] = await check(js, msgspec.structs.replace(installation, shards=shards))
    assert "set it to 4" in str(problem)


async def test_a_newer_installation_is_refused(js: JetStream, installation: Installation) -> None:
    config = streams(installation)[0]
    await js.stream_create(config | {"metadata": {STAMP_SHARDS: "4", STAMP_VERSION: "3"}})
    with pytest.raises(SetupError, match=r"the version is 3, must be 2: .*upgrade"):
        await setup(js, installation)


async def test_a_refusal_makes_nothing(js: JetStream, installation: Installation) -> None:
    config = streams(installation)[1]
    await js.stream_create(config | {"discard": "old"})
    with pytest.raises(SetupError, match=r"discard is old, must be new: .*drop"):
        await setup(js, installation)
    assert await js.stream_info(installation.names.events) is None


@pytest.mark.parametrize(
    ("which", "changed", "field"),
    [
        (0, {"subjects": ["{prefix}.events.*.*"], "subject_transform": None}, "subjects"),
        (0, {"subject_transform": None}, "subject_transform"),
        (1, {"retention": "workqueue", "discard": "new"}, "retention"),
        (1, {"max_age": 3600 * 10**9}, "max_age"),
        (1, {"max_msg_size": 1000}, "max_msg_size"),
        (1, {"duplicate_window": 10**9}, "duplicate_window"),
        (1, {"storage": "memory"}, "storage"),
        (1, {"max_msgs": 1000}, "max_msgs"),
        (2, {"max_msgs_per_subject": 10}, "max_msgs_per_subject"),
        (2, {"allow_direct": False}, "allow_direct"),
        (5, {"allow_direct": True}, "allow_direct"),
        (5, {"allow_atomic": False}, "allow_atomic"),
        (6, {"allow_msg_ttl": False, "subject_delete_marker_ttl": 0}, "allow_msg_ttl"),
    ],
)
async def test_a_setting_that_would_break_a_promise_is_refused(
    js: JetStream, installation: Installation, which: int, changed: dict[str, Any], field: str
) -> None:
    config = streams(installation)[which] | changed
    if field == "subjects":
        config["subjects"] = [subject.format(prefix=installation.prefix) for subject in config["subjects"]]
    await js.stream_create(config)
    problems = await check(js, installation)
    assert field in [problem.field for problem in problems if isinstance(problem, Mismatch)]
    with pytest.raises(SetupError, match=f"stream {config['name']}: {field} is"):
        await setup(js, installation)


async def test_a_refusal_of_the_server_is_reported(js: JetStream, installation: Installation) -> None:
    await js.stream_create(
        {"name": f"{installation.prefix}thief", "subjects": [f"{installation.prefix}.journal.1"]}
    )
    with pytest.raises(SetupError, match=f"refuses to create stream {installation.names.journal}: .*overlap"):
        await setup(js, installation)


@pytest.mark.parametrize(
    ("code", "text", "remedy"),
    [
        (10047, "insufficient storage resources available", "smaller --max-bytes"),
        (10049, "error creating store for stream", "its disk may be full or read-only"),
    ],
)
async def test_an_error_of_the_disk_is_reported_with_the_remedy(
    js: JetStream,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    text: str,
    remedy: str,
) -> None:
    async def refuse(config: dict[str, Any]) -> None:
        raise ApiError(code, text)

    monkeypatch.setattr(js, "stream_create", refuse)
    with pytest.raises(SetupError, match=rf"{text} .*{code}\): .*{remedy}"):
        await setup(js, installation)


async def test_a_server_too_old_is_refused(
    js: JetStream, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(js.wire), "server_version", "2.12.9")
    with pytest.raises(SetupError, match=r"nats-server is 2\.12\.9, must be 2\.14 or newer: upgrade it"):
        await setup(js, installation)


async def test_a_server_without_jetstream_is_refused(
    js: JetStream, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered() -> None:
        raise Unavailable("nobody answers")

    monkeypatch.setattr(js, "check", unanswered)
    with pytest.raises(SetupError, match="enable it in nats-server"):
        await setup(js, installation)
