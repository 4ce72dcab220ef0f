"""Guarantees of JetStream to publishers and readers; everything above the wire relies on them."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from actors.errors import Unavailable
from streams.nats.answers import Put, Refused, Stored, Unanswered
from streams.nats.errors import ApiError
from streams.nats.jetstream import SENT_IN_A_ROW, JetStream
from streams.nats.wire import Wire
from tests.contract.conftest import MakeStream
from tests.contract.nats.expectations import (
    LAST,
    MESSAGE_ID,
    STORE_FULL,
    TOO_LARGE,
    WRONG_LAST_SEQUENCE,
    expecting,
)
from tests.contract.support.servers import Server
from tests.support.waiting import KeptMessages, until, until_true


class TestPublishing:
    async def test_a_stored_message_is_read_back_as_it_was(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        before = time.time()
        headers = {"Angarium-Type": "order.created", "X": "Grüße", MESSAGE_ID: "1"}
        assert await js.publish(f"{prefix}.a", b"\x00\xffbody", headers) == Stored(1)
        message = await js.message(prefix, 1)
        assert message is not None
        assert (message.subject, message.position, message.data) == (f"{prefix}.a", 1, b"\x00\xffbody")
        assert message.headers == headers
        assert before - 1 < message.stored_at < time.time() + 1

    async def test_sequences_are_contiguous_in_the_order_of_publishing(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        answers = await asyncio.gather(*(js.publish(f"{prefix}.{i}", b"") for i in range(200)))
        assert answers == [Stored(i + 1) for i in range(200)]

    async def test_a_missing_stream_is_not_taken_for_a_refusal(self, js: JetStream, prefix: str) -> None:
        assert isinstance(await js.publish(f"{prefix}.nowhere", b""), Unanswered)

    async def test_an_answer_that_is_not_jetstreams_settles_nothing(
        self, js: JetStream, server: Server, prefix: str
    ) -> None:
        other = await server.connect("impostor")
        requests = KeptMessages()
        await other.subscribe(prefix, requests)
        await other.subscribe(f"{prefix}.ready", ready := KeptMessages())
        await other.publish(f"{prefix}.ready")
        await ready.first(1)
        for lie in (b"", b"OK", b"{}"):
            publishing = asyncio.ensure_future(js.publish(prefix, b""))
            await until(lambda: bool(requests.messages))
            await other.publish(requests.messages.pop().reply, lie)
            assert isinstance(await publishing, Unanswered)
        await other.close()

    async def test_a_publish_without_an_answer_in_time_is_unanswered(
        self, js: JetStream, wire: Wire, prefix: str
    ) -> None:
        await wire.subscribe(prefix, KeptMessages())
        answer = await js.publish(prefix, b"", timeout_s=0.05)
        assert isinstance(answer, Unanswered)
        with pytest.raises(Unavailable, match=prefix):
            await js.request(prefix, b"", timeout_s=0.05)

    async def test_open_requests_end_when_it_is_stopped(self, js: JetStream, wire: Wire, prefix: str) -> None:
        await wire.subscribe(prefix, requests := KeptMessages())
        publishing = asyncio.ensure_future(js.publish(prefix, b"", timeout_s=60))
        await requests.first(1)
        await js.stop()
        assert isinstance(await publishing, Unanswered)
        assert isinstance(await js.publish(prefix, b""), Unanswered)

    async def test_a_closed_wire_answers_nothing(self, server: Server, prefix: str) -> None:
        wire = await server.connect("closing")
        js = JetStream(wire)
        await js.start()
        await wire.close()
        assert isinstance(await js.publish(prefix, b""), Unanswered)
        assert isinstance(await js.publish_batch([Put(prefix, b"")]), Unanswered)
        with pytest.raises(Unavailable):
            await js.stream_info(prefix)


class TestExpectations:
    """The fence of the journal is made of these."""

    async def test_a_wrong_last_sequence_of_the_subject_is_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        subject = f"{prefix}.journal.7"
        assert await js.publish(subject, b"1", expecting(0)) == Stored(1)
        assert await js.publish(f"{prefix}.journal.8", b"other", expecting(0)) == Stored(2)
        assert await js.publish(subject, b"2", expecting(1)) == Stored(3)
        for stale in (0, 1, 2, 4):
            answer = await js.publish(subject, b"stale", expecting(stale))
            assert answer == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 3")
        last = await js.last_message(prefix, subject)
        assert last is not None
        assert (last.position, last.data) == (3, b"2")

    async def test_a_wrong_last_sequence_of_another_subject_is_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        owner, key = f"{prefix}.7._owner", f"{prefix}.7.acme.billing"
        assert await js.publish(owner, b"me", expecting(0)) == Stored(1)
        assert await js.publish(key, b"1", expecting(1, owner)) == Stored(2)
        assert await js.publish(key, b"2", expecting(1, owner)) == Stored(3)
        assert await js.publish(owner, b"another", expecting(1)) == Stored(4)
        refused = await js.publish(key, b"3", expecting(1, owner))
        assert refused == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 4")

    async def test_an_expectation_of_zero_holds_again_when_the_subject_was_purged(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        await js.publish(f"{prefix}.a", b"")
        await js.publish(f"{prefix}.b", b"")
        assert await js.purge(prefix, 2) == 1
        assert await js.publish(f"{prefix}.a", b"", expecting(0)) == Stored(3)

    async def test_one_of_two_writers_with_the_same_expectation_is_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        first, second = await asyncio.gather(
            js.publish(f"{prefix}.a", b"one", expecting(0)), js.publish(f"{prefix}.a", b"two", expecting(0))
        )
        assert first == Stored(1)
        assert second == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 1")


class TestDuplicates:
    async def test_a_message_id_counts_for_the_whole_stream(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        assert await js.publish(f"{prefix}.a", b"first", {MESSAGE_ID: "x"}) == Stored(1)
        assert await js.publish(f"{prefix}.a", b"again", {MESSAGE_ID: "x"}) == Stored(1, duplicate=True)
        assert await js.publish(f"{prefix}.b", b"other", {MESSAGE_ID: "x"}) == Stored(1, duplicate=True)
        assert await js.publish(f"{prefix}.b", b"other", {MESSAGE_ID: "y"}) == Stored(2)
        info = await js.stream_info(prefix)
        assert info is not None
        assert info.messages == 2

    async def test_a_message_id_is_forgotten_after_the_window(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(duplicate_window=200_000_000)
        assert await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "x"}) == Stored(1)

        async def taken_again() -> bool:
            return await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "x"}) == Stored(2)

        await until_true(taken_again)

    async def test_a_repeat_under_its_old_expectation_is_refused_by_one_server(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        """A cluster would call it a duplicate; the journal has to take both for a lost ack."""
        await make_stream()
        flush = {MESSAGE_ID: "flush-1", LAST: "0"}
        assert await js.publish(f"{prefix}.a", b"flush", flush) == Stored(1)
        repeated = await js.publish(f"{prefix}.a", b"flush", flush)
        assert repeated == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 1")

    async def test_a_repeat_under_a_true_expectation_is_a_duplicate(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "1", LAST: "0"})
        repeated = await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "1", LAST: "1"})
        assert repeated == Stored(1, duplicate=True)

    async def test_a_refused_publish_leaves_no_message_id(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        refused = await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "1", LAST: "9"})
        assert refused == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 0")
        assert await js.publish(f"{prefix}.a", b"", {MESSAGE_ID: "1", LAST: "0"}) == Stored(1)


class TestBatches:
    async def test_other_tasks_have_their_turns_while_a_large_batch_is_sent(
        self, js: JetStream, make_stream: MakeStream, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make_stream(allow_atomic=True)
        turn, sent_in, publish = 0, set[int](), js.wire.publish

        async def note(*arguments: Any, **named: Any) -> None:
            sent_in.add(turn)
            asyncio.get_running_loop().call_soon(pass_on)
            await publish(*arguments, **named)

        def pass_on() -> None:
            nonlocal turn
            turn += 1

        monkeypatch.setattr(js.wire, "publish", note)
        assert await js.publish_batch(
            [Put(f"{prefix}.{i}", b"") for i in range(5 * SENT_IN_A_ROW)]
        ) == Stored(5 * SENT_IN_A_ROW)
        assert len(sent_in) >= 5

    async def test_a_batch_is_stored_whole(self, js: JetStream, make_stream: MakeStream, prefix: str) -> None:
        await make_stream(allow_atomic=True)
        await js.publish(f"{prefix}.a", b"before")
        puts = [Put(f"{prefix}.{i}", b"%d" % i, {"N": str(i)}) for i in range(5)]
        assert await js.publish_batch(puts) == Stored(6)
        page = await js.read(prefix, f"{prefix}.>", 2)
        assert [(m.subject, m.position, m.data) for m in page.messages] == [
            (f"{prefix}.{i}", i + 2, b"%d" % i) for i in range(5)
        ]
        assert page.messages[3].headers["N"] == "3"

    async def test_batches_of_one_and_of_a_thousand_are_stored(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(allow_atomic=True)
        assert await js.publish_batch([Put(f"{prefix}.a", b"")]) == Stored(1)
        assert await js.publish_batch([Put(f"{prefix}.a", b"")] * 1000) == Stored(1001)
        for wrong in (0, 1001):
            with pytest.raises(ValueError, match=str(wrong)):
                await js.publish_batch([Put(f"{prefix}.a", b"")] * wrong)

    @pytest.mark.parametrize("place", [0, 1, 2])
    async def test_a_stale_fence_on_any_message_stores_none(
        self, js: JetStream, make_stream: MakeStream, prefix: str, place: int
    ) -> None:
        await make_stream(allow_atomic=True)
        owner = f"{prefix}.7._owner"
        await js.publish(owner, b"me")
        await js.publish(owner, b"another")
        puts = [Put(f"{prefix}.7.{i}", b"") for i in range(3)]
        puts[place] = Put(puts[place].subject, b"", expecting(1, owner))
        assert await js.publish_batch(puts) == Refused(WRONG_LAST_SEQUENCE, "wrong last sequence: 2")
        info = await js.stream_info(prefix)
        assert info is not None
        assert (info.messages, info.last) == (2, 2)
        puts[place] = Put(puts[place].subject, b"", expecting(2, owner))
        assert await js.publish_batch(puts) == Stored(5)

    async def test_a_stream_that_does_not_allow_batches_refuses_them(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        answer = await js.publish_batch([Put(f"{prefix}.a", b""), Put(f"{prefix}.b", b"")])
        assert isinstance(answer, Refused)
        assert answer.code == 10174
        info = await js.stream_info(prefix)
        assert info is not None
        assert info.messages == 0


class TestRefusals:
    """A full stream refuses what is new, and keeps what it has."""

    async def test_too_many_bytes_are_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(discard="new", max_bytes=4096)
        answers = [await js.publish(f"{prefix}.a", bytes(1000)) for _ in range(6)]
        stored = [answer for answer in answers if isinstance(answer, Stored)]
        assert [answer.position for answer in stored] == list(range(1, len(stored) + 1))
        assert 1 <= len(stored) < 5
        assert answers[len(stored) :] == [Refused(STORE_FULL, "maximum bytes exceeded")] * (6 - len(stored))
        assert await js.purge(prefix, 2) == 1
        assert await js.publish(f"{prefix}.a", bytes(1000)) == Stored(len(stored) + 1)

    async def test_too_many_messages_are_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(discard="new", max_msgs=2)
        await js.publish(f"{prefix}.a", b"")
        await js.publish(f"{prefix}.b", b"")
        refused = await js.publish(f"{prefix}.c", b"", {MESSAGE_ID: "c"})
        assert refused == Refused(STORE_FULL, "maximum messages exceeded")
        await js.purge(prefix, 2)
        assert await js.publish(f"{prefix}.c", b"", {MESSAGE_ID: "c"}) == Stored(3)

    async def test_a_message_too_large_for_the_stream_is_refused(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(max_msg_size=1024)
        headers = {"H": "x" * 100}
        assert await js.publish(f"{prefix}.a", bytes(900), headers) == Stored(1)
        refused = await js.publish(f"{prefix}.a", bytes(1000), headers)
        assert refused == Refused(TOO_LARGE, "message size exceeds maximum allowed")
        assert await js.publish(f"{prefix}.a", bytes(1024)) == Stored(2)

    async def test_a_message_too_large_for_the_server_is_refused(
        self, js: JetStream, wire: Wire, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(allow_atomic=True)
        headers = {"H": "ä"}
        most = wire.max_payload - len(b"NATS/1.0\r\nH: \xc3\xa4\r\n\r\n")
        assert await js.publish(f"{prefix}.a", bytes(most), headers) == Stored(1)
        for answer in (
            await js.publish(f"{prefix}.a", bytes(most + 1), headers),
            await js.publish_batch([Put(f"{prefix}.a", bytes(most + 1), headers), Put(f"{prefix}.a", b"")]),
        ):
            assert isinstance(answer, Refused)
            assert answer.code == TOO_LARGE
        assert wire.is_connected
        assert await js.publish(f"{prefix}.a", b"") == Stored(2)


class TestReading:
    async def test_a_wildcard_is_read_in_pages(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for i in range(10):
            await js.publish(f"{prefix}.{'ab'[i % 2]}.x", b"%d" % i)
        page = await js.read(prefix, f"{prefix}.a.*", 2, batch=3)
        assert [message.position for message in page.messages] == [3, 5, 7]
        assert page.pending == 1
        rest = await js.read(prefix, f"{prefix}.a.*", 8)
        assert [message.position for message in rest.messages] == [9]
        assert rest.pending == 0

    async def test_an_empty_stream_has_no_messages(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        assert (await js.read(prefix, f"{prefix}.a", 0)).messages == []
        await js.publish(f"{prefix}.a", b"")
        for subject, sequence in ((f"{prefix}.b", 1), (f"{prefix}.a", 2), (f"{prefix}.a", 1000)):
            page = await js.read(prefix, subject, sequence)
            assert (page.messages, page.pending) == ([], 0)
            assert await js.next_message(prefix, subject, sequence) is None
        assert await js.last_message(prefix, f"{prefix}.b") is None
        assert await js.message(prefix, 2) is None

    async def test_a_page_is_cut_at_its_bytes(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for _ in range(20):
            await js.publish(f"{prefix}.a", bytes(1000))
        page = await js.read(prefix, f"{prefix}.a", 1, max_bytes=5000)
        assert 1 <= len(page.messages) <= 6
        assert page.pending == 20 - len(page.messages)

    async def test_both_ways_of_reading_agree(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        """The messages include headers that only the server may set, stored by a producer."""
        await make_stream()
        lies = {
            "Nats-Stream": "other",
            "Nats-Sequence": "999",
            "Nats-Time-Stamp": "never",
            "Nats-Num-Pending": "0",
            "Nats-Subject": "other.subject",
            "Nats-Last-Sequence": "77",
            "Status": "404",
            "Description": "EOB",
        }
        await js.publish(f"{prefix}.a", b"1", lies)
        await js.publish(f"{prefix}.b", b"2")
        await js.publish(f"{prefix}.c", b"", {"Status": "204"})
        page = await js.read(prefix, f"{prefix}.>", 1)
        led = [await js.message(prefix, sequence) for sequence in (1, 2, 3)]
        assert page.messages == led
        assert page.messages[0].headers == {"Status": "404", "Description": "EOB"}
        assert page.messages == [
            await js.next_message(prefix, ">", 1),
            await js.next_message(prefix, f"{prefix}.*", 2),
            await js.last_message(prefix, f"{prefix}.>"),
        ]

    async def test_purged_messages_are_passed_over(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for _ in range(5):
            await js.publish(f"{prefix}.a", b"")
        assert await js.purge(prefix, 4) == 3
        page = await js.read(prefix, f"{prefix}.a", 1)
        assert [message.position for message in page.messages] == [4, 5]
        found = await js.next_message(prefix, f"{prefix}.a", 1)
        assert found is not None
        assert found.position == 4
        assert await js.message(prefix, 3) is None
        info = await js.stream_info(prefix)
        assert info is not None
        assert (info.first, info.last, info.messages) == (4, 5, 2)
        assert await js.purge(prefix, 6) == 2
        info = await js.stream_info(prefix)
        assert info is not None
        assert (info.first, info.last, info.messages) == (6, 5, 0)

    async def test_a_purge_below_the_first_message_is_not_requested(
        self, js: JetStream, make_stream: MakeStream, server: Server, prefix: str
    ) -> None:
        """The server is not asked: 2.14.1 and older would purge everything."""
        await make_stream()
        await js.publish(f"{prefix}.a", b"")
        other = await server.connect("other")
        await other.subscribe(f"$JS.API.STREAM.PURGE.{prefix}", requests := KeptMessages())
        await other.subscribe(f"{prefix}.ready", ready := KeptMessages())
        await other.publish(f"{prefix}.ready")
        await ready.first(1)
        assert await js.purge(prefix, 0) == await js.purge(prefix, 1) == 0
        assert await js.purge(prefix, 2) == 1
        assert [msgspec.json.decode(each.data) for each in await requests.first(1)] == [{"seq": 2}]
        assert len(requests.messages) == 1
        await other.close()

    async def test_the_first_message_since_an_instant_is_found(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        at = []
        for number in range(6):
            await js.publish(f"{prefix}.{'ab'[number % 2]}", b"")
            await asyncio.sleep(0.002)
            message = await js.message(prefix, number + 1)
            assert message is not None
            at.append(message.stored_at)
        for number in range(6):
            message = await js.first_since(prefix, f"{prefix}.>", at[number])
            assert message is not None
            assert message.position == number + 1
        message = await js.first_since(prefix, f"{prefix}.b", at[2])
        assert message is not None
        assert message.position == 4
        assert await js.first_since(prefix, f"{prefix}.>", at[5] + 60) is None

    async def test_a_stream_without_direct_get_is_read_from_its_leader_only(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(allow_direct=False)
        await js.publish(f"{prefix}.a", b"1")
        with pytest.raises(Unavailable, match=prefix):
            await js.read(prefix, f"{prefix}.a", 1)
        assert await js.last_message(prefix, f"{prefix}.a") is not None

    async def test_subjects_are_listed_with_their_counts(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for subject in ("7.a", "7.b", "7.a", "8.a"):
            await js.publish(f"{prefix}.{subject}", b"")
        assert await js.subjects(prefix, f"{prefix}.7.*") == {f"{prefix}.7.a": 2, f"{prefix}.7.b": 1}
        assert await js.subjects(prefix, f"{prefix}.9.*") == {}
        with pytest.raises(ApiError):
            await js.subjects("nowhere", ">")


class TestDeleting:
    async def test_one_message_is_deleted_and_no_other(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for _ in range(3):
            await js.publish(f"{prefix}.a", b"")
        assert await js.delete(prefix, 2) is True
        assert [message.position for message in (await js.read(prefix, ">", 1)).messages] == [1, 3]

    async def test_a_purged_or_deleted_message_is_not_there(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream()
        for _ in range(4):
            await js.publish(f"{prefix}.a", b"")
        await js.purge(prefix, 2)
        await js.delete(prefix, 3)
        for sequence in (1, 3, 9):
            assert await js.delete(prefix, sequence) is False

    async def test_a_delete_that_is_not_allowed_is_an_error(
        self, js: JetStream, make_stream: MakeStream, prefix: str
    ) -> None:
        await make_stream(deny_delete=True)
        await js.publish(f"{prefix}.a", b"")
        with pytest.raises(ApiError):
            await js.delete(prefix, 1)
