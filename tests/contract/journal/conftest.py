"""A journal over a JetStream that can be made to fail."""

from collections.abc import AsyncIterator

import pytest

from streams.installation.topology import Names
from streams.journal.claim import Claim
from streams.journal.journal import Journal
from tests.contract.journal.flushes import DAY_S, Keep
from tests.contract.support.faults import FaultyJetStream
from tests.contract.support.shards import Clocks, Listening, own


@pytest.fixture
async def keep(faulty: FaultyJetStream, names: Names) -> AsyncIterator[Keep]:
    """A started journal of node a over the faulty JetStream, and who listens to it."""
    journals: list[Journal] = []

    async def start(
        listening: Listening | None = None, claim: Claim | None = None, retention_s: float = DAY_S
    ) -> tuple[Journal, Listening]:
        listening = listening or Listening()
        claim = claim or await own(faulty, names, "a")
        journal = Journal(faulty, names, claim, "a", listening, time=Clocks(), retention_s=retention_s)
        journal.start()
        journals.append(journal)
        return journal, listening

    yield start
    for journal in journals:
        await journal.stop()
