"""What the proofs with real processes start from: a fleet, and moments drawn from a seed that is told."""

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.fleet import Fleet, open_fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """nats-server, an installation, and a sink; tests start the nodes."""
    async with open_fleet(tmp_path) as fleet:
        yield fleet


@pytest.fixture
def rng() -> random.Random:
    """`SEED=…` in the environment draws the same moments again; what processes do then is theirs."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"moments drawn with SEED={seed}")
    return random.Random(seed)
