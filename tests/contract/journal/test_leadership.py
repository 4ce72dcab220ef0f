"""Answers of leaders: which are trusted, and the server's behaviour that this relies on."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec.structs import replace

from actors.errors import Unavailable
from streams.installation.topology import Names
from streams.journal.leadership import ensure_no_message, info_since, is_last, message_at
from streams.nats.answers import Page, StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.support.servers import Server, opened
from tests.support.installation import publish, shard

RECEIVER, OTHER = "acme.billing", "acme.other"


class Deposed(JetStream):
    """A JetStream whose leader was deposed, and knows nothing beyond `end`."""

    end = 1 << 60

    async def next_message(self, stream: str, subject: str, sequence: int) -> StoredMessage | None:
        message = await super().next_message(stream, subject, sequence)
        return message if message is not None and message.position <= self.end else None


@pytest.fixture
async def deposed(server: Server, names: Names) -> AsyncIterator[Deposed]:
    async with opened(server, Deposed) as js:
        yield js


def subject_of(names: Names, receiver: str) -> str:
    return names.delivery(shard(receiver), receiver)


async def test_the_newest_of_each_subject_comes_with_the_end(js: JetStream, names: Names) -> None:
    for receiver in (RECEIVER, OTHER, RECEIVER, OTHER):
        await publish(js, names, receiver)
    ours, others = subject_of(names, RECEIVER), subject_of(names, OTHER)
    page = await js.last_of(names.deliveries, [ours])
    assert ([each.position for each in page.messages], page.up_to) == ([3], 4)
    page = await js.last_of(names.deliveries, [others, ours])
    assert ([each.position for each in page.messages], page.up_to) == ([3, 4], 4)
    page = await js.last_of(names.deliveries, [subject_of(names, "acme.nobody")])
    assert (page.messages, page.up_to) == ([], 0)


async def test_nothing_up_to_a_position_is_proved_by_one_answer(js: JetStream, names: Names) -> None:
    for receiver in (RECEIVER, OTHER, RECEIVER, OTHER):
        await publish(js, names, receiver)
    stream, ours = names.deliveries, subject_of(names, RECEIVER)
    await ensure_no_message(js, stream, ours, 3, 4)
    await ensure_no_message(js, stream, ours, 1, 2)
    await ensure_no_message(js, stream, subject_of(names, "acme.nobody"), 0, 4)
    with pytest.raises(Unavailable, match="does not know the message at 3"):
        await ensure_no_message(js, stream, ours, 2, 4)
    with pytest.raises(Unavailable, match="ends at 4, and 5 was there"):
        await ensure_no_message(js, stream, ours, 3, 5)


async def test_the_absence_of_messages_is_proved_for_many_subjects_as_for_one(
    js: JetStream, names: Names
) -> None:
    for receiver in (RECEIVER, RECEIVER, OTHER):
        await publish(js, names, receiver)
    assert shard(RECEIVER) != shard(OTHER)
    stream, all_ours = names.deliveries, names.deliveries_of(shard(RECEIVER))
    for everything in (">", f"{names.prefix}.deliver.>"):
        await ensure_no_message(js, stream, everything, 3, 3)
        with pytest.raises(Unavailable, match="does not know the message at 3"):
            await ensure_no_message(js, stream, everything, 2, 3)
    await ensure_no_message(js, stream, all_ours, 2, 3)
    await ensure_no_message(js, stream, names.deliveries_of(shard("acme.nobody")), 0, 3)
    with pytest.raises(Unavailable, match="does not know the message at 2"):
        await ensure_no_message(js, stream, all_ours, 1, 3)
    with pytest.raises(Unavailable, match="ends at 3, and 4 was there"):
        await ensure_no_message(js, stream, all_ours, 2, 4)


async def test_absence_is_proved_in_parts_for_more_subjects_than_the_server_answers(
    js: JetStream, names: Names
) -> None:
    receivers = [each for each in (f"acme.x{number}" for number in range(4_600)) if shard(each) == 0][:1_100]
    for start in range(0, len(receivers), 100):
        some = receivers[start : start + 100]
        await asyncio.gather(*(publish(js, names, each) for each in some))
    stream, all_of_them = names.deliveries, names.deliveries_of(0)
    end = len(receivers)
    with pytest.raises(Unavailable, match="413"):
        await js.last_of(stream, [all_of_them])
    await js.delete(stream, end)
    await ensure_no_message(js, stream, all_of_them, end - 1, end)
    with pytest.raises(Unavailable, match=f"does not know the message at {end - 1}"):
        await ensure_no_message(js, stream, all_of_them, end - 2, end)


async def test_a_part_of_the_last_messages_proves_nothing(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stops at 64 MiB (2.15.1): of 90 messages of 900 KiB the newest 17 are only counted."""
    for receiver in (RECEIVER, OTHER):
        await publish(js, names, receiver)
    stream, all_ours = names.deliveries, names.deliveries_of(shard(RECEIVER))
    page = await js.last_of(stream, [all_ours])

    async def last_of(stream: str, subjects: Sequence[str], timeout_s: float = 5.0) -> Page:
        return replace(page, pending=17)

    await ensure_no_message(js, stream, all_ours, 1, 2)
    monkeypatch.setattr(js, "last_of", last_of)
    with pytest.raises(Unavailable, match="too many bytes"):
        await ensure_no_message(js, stream, all_ours, 1, 2)


async def test_nothing_in_a_stream_that_was_emptied(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await js.purge(names.deliveries, 4)
    await ensure_no_message(js, names.deliveries, subject_of(names, RECEIVER), 0, 3)
    assert await message_at(js, names.deliveries, 2) is None


async def test_a_later_message_proves_that_an_earlier_one_is_gone(js: JetStream, names: Names) -> None:
    for _ in range(3):
        await publish(js, names, RECEIVER)
    await js.delete(names.deliveries, 2)
    assert await message_at(js, names.deliveries, 2) is None
    found = await message_at(js, names.deliveries, 3)
    assert found is not None
    assert found.position == 3


async def test_only_the_newest_message_can_be_written_after(js: JetStream, names: Names) -> None:
    key = f"$KV.{names.actors.removeprefix('KV_')}.0.acme.billing"
    assert await is_last(js, names.actor_keys.proof(0), key, 0)
    for _ in range(2):
        await js.publish(key, b"{}")
    newest = await js.last_message(names.actors, key)
    assert newest is not None
    assert await is_last(js, names.actor_keys.proof(0), key, newest.position)
    assert await is_last(js, names.actor_keys.proof(0), key, newest.position)
    assert not await is_last(js, names.actor_keys.proof(0), key, newest.position - 1)
    assert not await is_last(js, names.actor_keys.proof(0), key, 0)


async def test_the_answer_of_a_single_server_is_believed_at_once(js: JetStream, names: Names) -> None:
    await publish(js, names, RECEIVER)
    info = await info_since(js, names.deliveries, 0.0)
    assert (info.last, info.heard_s) == (1, 0.0)


async def test_a_deposed_leaders_silence_is_not_an_answer(
    js: JetStream, names: Names, deposed: Deposed
) -> None:
    for _ in range(2):
        await publish(js, names, RECEIVER)
    deposed.end = 1
    with pytest.raises(Unavailable):
        await ensure_no_message(deposed, names.deliveries, subject_of(names, RECEIVER), 1, 2)


async def test_a_message_that_only_the_new_leader_has_is_found(
    js: JetStream, names: Names, deposed: Deposed
) -> None:
    """The first answer was that of a leader that was deposed; the next leader has one, up to the place."""
    for receiver in (RECEIVER, OTHER, RECEIVER):
        await publish(js, names, receiver)
    ours = subject_of(names, RECEIVER)
    with pytest.raises(Unavailable, match="does not know the message at 1"):
        await ensure_no_message(deposed, names.deliveries, ours, 0, 2)
    await ensure_no_message(deposed, names.deliveries, ours, 1, 2)
