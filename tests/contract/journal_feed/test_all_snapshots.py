"""The snapshots that a reader uses when the journal is gone: none is an old one of a deposed leader."""

from typing import Any

import pytest
from msgspec.structs import replace

from streams.installation.topology import Names
from streams.journal_feed.all_snapshots import all_snapshots
from streams.nats.answers import StoredMessage, StreamInfo
from streams.nats.jetstream import JetStream
from tests.contract.resending.settled_events import ONE, settled
from tests.support.installation import shard


class Deposed:
    """A leader that answers as of the time before a snapshot was stored, until it is told `over`."""

    def __init__(self, js: JetStream, monkeypatch: pytest.MonkeyPatch, old: StoredMessage) -> None:
        self.over = False
        last_message, info_of, list_subjects = js.last_message, js.existing_stream, js.subjects_and_info

        async def last(stream: str, subject: str) -> StoredMessage | None:
            return await last_message(stream, subject) if self.over else old

        async def info(stream: str) -> StreamInfo:
            found = await info_of(stream)
            return found if self._end() else replace(found, heard_s=60.0)

        async def subjects(stream: str, subject: str) -> Any:
            found, its = await list_subjects(stream, subject)
            return (found, its) if self._end() else (found, replace(its, heard_s=60.0))

        monkeypatch.setattr(js, "last_message", last)
        monkeypatch.setattr(js, "existing_stream", info)
        monkeypatch.setattr(js, "subjects_and_info", subjects)

    def _end(self) -> bool:
        """True if it was over; it is over after this answer."""
        before, self.over = self.over, True
        return before


async def two_snapshots(js: JetStream, names: Names) -> StoredMessage:
    """Two snapshots of a receiver, up to the events 1 and 2; returns the first one."""
    await settled(js, names, 1)
    old = await js.last_message(names.actors, names.actor_keys.actor(shard(ONE), ONE))
    assert old is not None
    await settled(js, names, 2)
    return old


async def positions(js: JetStream, names: Names) -> list[int]:
    return [each.state.frontier.position async for each in all_snapshots(js, names)]


async def test_no_snapshot_of_a_deposed_leader_is_taken(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    Deposed(js, monkeypatch, await two_snapshots(js, names))
    assert await positions(js, names) == [2]


async def test_a_leader_proves_again_what_it_knows_over_another_connection(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, asked = await two_snapshots(js, names), list[str]()
    last_message = js.last_message

    async def reconnected(stream: str, subject: str) -> StoredMessage | None:
        asked.append(subject)
        if len(asked) > 1:
            return await last_message(stream, subject)
        js.connection_changes += 2
        return old

    monkeypatch.setattr(js, "last_message", reconnected)
    assert await positions(js, names) == [2]
