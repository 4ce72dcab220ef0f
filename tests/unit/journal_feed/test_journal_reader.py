"""Reading the journal in order: a message that a replica lacks is no gap while the leader has it."""

from typing import Any, cast

from streams.installation.topology import Names
from streams.journal_feed.journal_reader import Gap, JournalReader
from streams.nats.answers import Page, StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream


def message(sequence: int) -> StoredMessage:
    return StoredMessage("angarium.journal.1", sequence, float(sequence), {}, b"")


class Replicated:
    """A stream that is read from a replica, and asked of its leader."""

    def __init__(self, replica: list[int], leader: list[int]) -> None:
        self.replica = replica
        self.leader = leader

    def add_listener(self, _: Any) -> None: ...

    async def read(self, _: str, __: str, sequence: int, *bounds: int) -> Page:
        return Page([message(each) for each in self.replica if each >= sequence], 0)

    async def last_message(self, _: str, __: str) -> None:
        """No message has a redacted copy."""

    async def subjects_and_info(self, _: str, __: str) -> tuple[list[str], StreamInfo]:
        return [], StreamInfo("KV", "", 1, 0, 0, 0, -1, {})

    async def next_message(self, _: str, __: str, sequence: int) -> StoredMessage | None:
        return next((message(each) for each in self.leader if each >= sequence), None)


def reader(replica: list[int], leader: list[int]) -> JournalReader:
    return JournalReader(cast(JetStream, Replicated(replica, leader)), Names())


async def test_the_messages_before_a_hole_are_taken_first() -> None:
    assert await reader([5, 6, 8], [5, 6, 7, 8]).read(4) == [message(5), message(6)]


async def test_a_message_that_the_leader_has_is_not_a_gap() -> None:
    assert await reader([8], [7, 8]).read(6) == [message(7)]
    assert await reader([], [7, 8]).read(6) == [message(7)]


async def test_messages_that_the_leader_lacks_are_a_gap_up_to_the_next() -> None:
    assert await reader([9], [9]).read(6) == Gap(7, 8, 9.0)
    assert await reader([], [9]).read(6) == Gap(7, 8, 9.0)


async def test_at_the_end_there_is_nothing() -> None:
    assert await reader([], []).read(6) == []
