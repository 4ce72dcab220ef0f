"""Fixtures for tests of membership: adjustable clocks, nodes that join, a connection that misses messages."""

from collections.abc import AsyncIterator

import pytest

from streams.fleet.members import Members
from streams.fleet.process_runs import UNSUPERVISED, ProcessRuns
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from tests.contract.fleet.bucket_reads import ROUND_S, TTL_S, BucketReads, Join
from tests.contract.support.servers import Server, opened
from tests.contract.support.shards import Clocks


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
async def join(names: Names, clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Join]:
    monkeypatch.setattr("streams.fleet.members.RENEWALS_PER_TTL", TTL_S / ROUND_S)
    joined: list[Members] = []

    async def start(
        js: JetStream, node: str, its_clocks: Clocks | None = None, runs: ProcessRuns = UNSUPERVISED
    ) -> Members:
        members = Members(js, names, node, its_clocks or clocks, ttl_s=TTL_S, version="1.2.3", runs=runs)
        await members.start()
        joined.append(members)
        return members

    yield start
    for members in joined:
        await members.leave()


@pytest.fixture
async def counted(server: Server, names: Names) -> AsyncIterator[BucketReads]:
    async with opened(server, BucketReads) as js:
        yield js
