"""Guarantees of a stream's configuration: transforms, buckets, lifetimes, limits."""

import asyncio

import pytest

from streams.installation.partitions import shard_of
from streams.nats.answers import Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import JetStream
from tests.contract.conftest import MakeStream
from tests.contract.nats.expectations import (
    MESSAGE_ID,
    WRONG_LAST_SEQUENCE,
    expecting,
)
from tests.support.waiting import until_true


class TestTransform:
    async def test_the_partition_is_ours(self, js: JetStream, make_stream: MakeStream, prefix: str) -> None:
        """Thousands of receivers: the server puts each into the shard that we compute."""
        deliver = f"{prefix}.deliver"
        await make_stream(
            subjects=[f"{deliver}.*.*"],
            subject_transform={
                "src": f"{deliver}.*.*",
                "dest": f"{deliver}.{{{{partition(64,1,2)}}}}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}",
            },
        )
        names = [(f"tenant-{i % 37}", f"name_{i}{'x' * (i % 50)}") for i in range(3000)]
        await asyncio.gather(*(js.publish(f"{deliver}.{tenant}.{name}", b"") for tenant, name in names))
        assert await js.subjects(prefix, ">") == {
            f"{deliver}.{shard_of(tenant, name, 64)}.{tenant}.{name}": 1 for tenant, name in names
        }

    async def test_expectations_and_ids_survive_the_transform(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(
            subjects=[f"{prefix}.in.*"],
            subject_transform={"src": f"{prefix}.in.*", "dest": f"{prefix}.out.{{{{wildcard(1)}}}}"},
        )
        headers = {MESSAGE_ID: "x", "H": "v"}
        assert await js.publish(f"{prefix}.in.a", b"", headers) == Stored(1)
        assert await js.publish(f"{prefix}.in.a", b"", headers) == Stored(1, duplicate=True)
        message = await js.last_message(prefix, f"{prefix}.out.a")
        assert message is not None
        assert message.headers == headers
        assert isinstance(await js.publish(f"{prefix}.out.a", b""), Unanswered)


class TestKeyValue:
    """A bucket is a stream with one message a subject; deletions are markers."""

    async def test_a_key_has_its_last_value_only(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(max_msgs_per_subject=1, discard="new", allow_rollup_hdrs=True, deny_delete=True)
        assert await js.publish(f"{prefix}.k", b"1") == Stored(1)
        assert await js.publish(f"{prefix}.other", b"x") == Stored(2)
        assert await js.publish(f"{prefix}.k", b"2", expecting(1)) == Stored(3)
        assert await js.publish(f"{prefix}.k", b"", {"KV-Operation": "DEL"}) == Stored(4)
        assert await js.message(prefix, 1) is None
        page = await js.read(prefix, f"{prefix}.>", 1)
        assert [(m.position, m.headers) for m in page.messages] == [(2, {}), (4, {"KV-Operation": "DEL"})]
        stale = await js.publish(f"{prefix}.k", b"", expecting(3))
        assert stale == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 4")

    async def test_a_purge_marker_rolls_its_key_up(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(max_msgs_per_subject=5, discard="new", allow_rollup_hdrs=True)
        await js.publish(f"{prefix}.k", b"1")
        await js.publish(f"{prefix}.k", b"2")
        marker = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
        assert await js.publish(f"{prefix}.k", b"", marker) == Stored(3)
        assert await js.subjects(prefix, ">") == {f"{prefix}.k": 1}

    async def test_a_key_expires_and_leaves_a_marker(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(
            max_msgs_per_subject=1,
            discard="new",
            allow_rollup_hdrs=True,
            allow_msg_ttl=True,
            subject_delete_marker_ttl=60_000_000_000,
        )
        await js.publish(f"{prefix}.node", b"alive", {"Nats-TTL": "1s"})
        await js.publish(f"{prefix}.kept", b"alive")

        async def gone() -> bool:
            return await js.message(prefix, 1) is None

        assert not await gone()
        await until_true(gone)
        marker = await js.last_message(prefix, f"{prefix}.node")
        assert marker is not None
        assert (marker.data, marker.headers["Nats-Marker-Reason"]) == (b"", "MaxAge")
        assert await js.message(prefix, 2) is not None

    async def test_a_time_to_live_has_to_be_allowed_and_whole_seconds(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        answer = await js.publish(f"{prefix}.a", b"", {"Nats-TTL": "1s"})
        assert isinstance(answer, Refused)
        assert answer.code == 10166
        await js.stream_create({"name": f"{prefix}ttl", "subjects": [f"{prefix}ttl"], "allow_msg_ttl": True})
        answer = await js.publish(f"{prefix}ttl", b"", {"Nats-TTL": "500ms"})
        assert isinstance(answer, Refused)
        assert answer.code == 10165


class TestStreams:
    async def test_creating_the_same_again_changes_nothing(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        made = await make_stream(max_bytes=1 << 20, metadata={"angarium.shards": "64"})
        await js.publish(f"{prefix}.a", b"")
        again = await make_stream(max_bytes=1 << 20, metadata={"angarium.shards": "64"})
        assert (again.created, again.messages) == (made.created, 1)
        assert (again.max_bytes, again.config["metadata"]["angarium.shards"]) == (1 << 20, "64")
        with pytest.raises(ApiError) as refused:
            await make_stream(max_bytes=2 << 20)
        assert refused.value.code == 10058

    async def test_an_update_keeps_what_is_stored(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        made = await make_stream()
        await js.publish(f"{prefix}.a", b"")
        await js.stream_update(made.config | {"max_bytes": 1 << 20})
        info = await js.stream_info(prefix)
        assert info is not None
        assert (info.max_bytes, info.messages, info.created) == (1 << 20, 1, made.created)

    async def test_the_information_of_a_stream_is_read(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        assert await js.stream_info(prefix) is None
        made = await make_stream()
        assert (made.name, made.first, made.last, made.messages) == (prefix, 1, 0, 0)
        assert made.config["subjects"] == [f"{prefix}.>"]
        await js.publish(f"{prefix}.a", b"x")
        info = await js.stream_info(prefix)
        assert info is not None
        assert (info.first, info.last, info.messages, info.max_bytes) == (1, 1, 1, -1)
        assert info.bytes > 0
        assert info.created == made.created

    async def test_a_server_with_jetstream_is_recognized(self, js: JetStream) -> None:
        await js.check()
