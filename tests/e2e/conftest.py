"""What the proofs with real processes start from: a fleet, and moments drawn from a seed that is told."""

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.fleet import Fleet, open_fleet
from tests.e2e.nodes import LONG_TTL_S


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """nats-server, an installation, and a sink; tests start the nodes."""
    async with open_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def durable_fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """The same, whose nats-server syncs before each acknowledgement."""
    async with open_fleet(tmp_path, sync_interval="always") as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """A fleet with one node, for all tests of a module, each of which has a receiver of its own."""
    async with open_fleet(tmp_path_factory.mktemp("fleet"), ttl_s=LONG_TTL_S) as fleet:
        await fleet.start_ready()
        yield fleet


@pytest.fixture
def rng() -> random.Random:
    """`SEED=…` in the environment draws the same moments again; what processes do then is theirs."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"moments drawn with SEED={seed}")
    return random.Random(seed)
