"""Redacted flushes: late readers get every fact of an erased message, without its answers."""

from typing import Any

import pytest
from msgspec.structs import replace

from actors.machine.facts import AnyFact
from streams.installation.topology import Names
from streams.journal.envelope import decode_flush
from streams.journal_feed import redacted_flushes
from streams.journal_feed.journal_reader import Gap, JournalReader
from streams.journal_feed.redacted_flushes import drop_redacted, store_redacted
from streams.lost_tails.read_positions import BEGINNING
from streams.nats.answers import StoredMessage
from streams.nats.jetstream import JetStream
from tests.contract.journal.recording import recreate
from tests.support.ledgers import JournalWriter, delivered, failed, opens

SECRET = "what the receiver said"


async def redact(js: JetStream, names: Names, position: int) -> StoredMessage:
    """Put a copy in place of the message, as an erasure does; returns the message as it was."""
    message = await js.message(names.journal, position)
    assert message is not None
    await store_redacted(js, names, message)
    assert await js.delete(names.journal, position)
    return message


async def reader(js: JetStream, names: Names) -> JournalReader:
    reader = JournalReader(js, names)
    await reader.check(BEGINNING)
    return reader


def facts(message: StoredMessage) -> list[AnyFact]:
    return list(decode_flush(message.data, "a test").facts)


async def test_a_copy_is_read_in_place_of_its_message(js: JetStream, names: Names) -> None:
    journal = JournalWriter(js, names)
    recorded = [failed(1, answer=SECRET), delivered(7, receiver="other.orders"), failed(2, answer=SECRET)]
    for several in ([opens()], recorded, [delivered(1)]):
        await journal.flush(*several)
    before = await redact(js, names, 2)
    reading = await reader(js, names)
    read: list[StoredMessage] = []
    while isinstance(found := await reading.read(len(read)), list) and found:
        read += found
    assert [each.position for each in read] == [1, 2, 3]
    copy = read[1]
    assert (copy.subject, copy.stored_at) == (before.subject, before.stored_at)
    assert facts(copy) == [
        replace(each, answer="") if hasattr(each, "answer") else each for each in recorded
    ]  # fmt: skip
    assert SECRET.encode() not in copy.data
    members, were = (replace(decode_flush(each.data, "a test"), facts=()) for each in (copy, before))
    assert members == were
    reading.stop()


async def test_a_message_that_is_gone_before_a_copy_is_a_gap_up_to_it(js: JetStream, names: Names) -> None:
    journal = JournalWriter(js, names)
    for sequence in range(1, 7):
        await journal.flush(failed(sequence, answer=SECRET))
    copied = await redact(js, names, 4)
    for position in (2, 3, 5):
        await js.delete(names.journal, position)
    reading = await reader(js, names)
    assert await reading.read(1) == Gap(2, 3, copied.stored_at)
    found = await reading.read(3)
    assert isinstance(found, list)
    assert [each.position for each in found] == [4]
    gap = await reading.read(4)
    assert isinstance(gap, Gap)
    assert (gap.first, gap.last) == (5, 5)
    reading.stop()


async def test_a_copy_of_another_journal_is_not_read(js: JetStream, names: Names) -> None:
    journal = JournalWriter(js, names)
    for position in (1, 2):
        assert await journal.flush(failed(position, answer=SECRET)) == position
    await redact(js, names, 1)
    await recreate(js, names, names.journal)
    for sequence in (1, 2):
        await journal.flush(delivered(sequence))
    await js.delete(names.journal, 1)
    reading = await reader(js, names)
    assert isinstance(await reading.read(0), Gap)
    reading.stop()


async def test_a_copy_that_a_deposed_leader_does_not_list_is_found(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader was deposed before the copy was stored, and no majority has answered it since."""
    journal = JournalWriter(js, names)
    for sequence in range(1, 5):
        await journal.flush(failed(sequence, answer=SECRET))
    await js.delete(names.journal, 1)
    copied = await redact(js, names, 2)
    list_subjects, asked = js.subjects_and_info, []

    async def deposed(stream: str, subject: str) -> Any:
        found, info = await list_subjects(stream, subject)
        asked.append(subject)
        return ([], replace(info, heard_s=60.0)) if len(asked) == 1 else (found, info)

    monkeypatch.setattr(js, "subjects_and_info", deposed)
    reading = await reader(js, names)
    assert await reading.read(0) == Gap(1, 1, copied.stored_at)
    assert len(asked) == 2
    reading.stop()


async def first_of(js: JetStream, stream: str) -> int:
    return (await js.existing_stream(stream)).first


async def copies(js: JetStream, names: Names) -> list[int]:
    found = await js.subjects(names.actors, names.actor_keys.redacted_flushes)
    return sorted(int(each.rpartition(".")[2]) for each in found)


async def test_copies_of_what_the_journal_was_purged_of_and_too_many_are_dropped(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalWriter(js, names)
    for sequence in range(1, 9):
        await journal.flush(failed(sequence, answer=SECRET))
    for position in (1, 2, 5, 6, 7):
        await redact(js, names, position)
    await js.purge(names.journal, 4)
    await drop_redacted(js, names, await first_of(js, names.journal))
    assert await copies(js, names) == [5, 6, 7]
    monkeypatch.setattr(redacted_flushes, "COPIES_MAX", 2)
    await drop_redacted(js, names, await first_of(js, names.journal))
    assert await copies(js, names) == [6, 7]


async def test_the_first_messages_of_the_journal_stay_readable_when_they_are_erased(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal begins after them then, as if purged. A deposed leader does not know the last copy."""
    journal = JournalWriter(js, names)
    for sequence in range(1, 5):
        await journal.flush(failed(sequence, answer=SECRET))
    for position in (1, 2):
        await redact(js, names, position)
    first = await first_of(js, names.journal)
    assert first == 3
    list_subjects = js.subjects

    async def deposed(stream: str, subject: str) -> dict[str, int]:
        found = await list_subjects(stream, subject)
        return {each: count for each, count in found.items() if each != names.actor_keys.redacted_flush(2)}

    monkeypatch.setattr(js, "subjects", deposed)
    await drop_redacted(js, names, first)
    monkeypatch.undo()
    assert await copies(js, names) == [1, 2]
    reading = await reader(js, names)
    read = await reading.read(0)
    assert isinstance(read, list)
    assert read[0].position == 1
    reading.stop()
