"""Permissions that a process tries before it starts: that stores nothing, and leaves out what is away."""

from angarium.access import Access
from angarium.operations.needed_permissions import check_permissions
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.support.installation import install, node_settings


async def test_trying_permissions_stores_nothing(js: JetStream, prefix: str) -> None:
    names = await install(js, prefix)
    access = Access(js, node_settings(names))
    await check_permissions(
        access, reads=(names.journal, names.nodes), writes=(names.node("a"), names.journal_of(0))
    )
    for stream in (names.journal, names.nodes):
        info = await js.stream_info(stream)
        assert info is not None
        assert info.last == 0


async def test_streams_that_are_missing_are_left_out(js: JetStream, prefix: str) -> None:
    names = Names(prefix)
    await check_permissions(
        Access(js, node_settings(names)), reads=(names.journal,), writes=(names.node("a"),)
    )
