"""Nodes of two versions in one fleet, on three servers."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.fleet.load import QUICK, slow_at_times
from tests.support.fleet.trial import TAKEN_S, Trial
from tests.support.processes.commands import FORKS
from tests.support.processes.forks import Forks
from tests.support.processes.nodes import needs_proc
from tests.support.processes.older_version import older_version

pytestmark = [pytest.mark.soak, pytest.mark.alone, needs_proc]
NAMES = "one", "two", "three"


@pytest.fixture
def older(tmp_path: Path) -> Iterator[Forks]:
    with older_version(tmp_path) as forks:
        yield forks


async def test_nodes_are_upgraded_in_turn_and_back(trial: Trial, older: Forks) -> None:
    """Receivers that answer within 200 ms get nothing twice, in either direction."""
    trial.fleet.sink.manners |= dict.fromkeys(QUICK, slow_at_times)
    for name in NAMES:
        await trial.fleet.start_ready(name, forks=older)
    async with trial.flowing():
        for version, forks in (("upgraded", FORKS), ("older again", older)):
            for name in NAMES:
                await trial.fleet.nodes[name].stop()
                await trial.some()
                await trial.fleet.start_ready(name, forks=forks)
                await trial.goes_on(f"{name} was {version}")
    await trial.check()


@pytest.mark.chaos
@pytest.mark.parametrize("newer_dies", [True, False], ids=["the newer", "the older"])
async def test_a_node_takes_over_from_another_version(trial: Trial, older: Forks, newer_dies: bool) -> None:
    newer_node = await trial.fleet.start_ready("newer")
    older_node = await trial.fleet.start_ready("older", forks=older)
    victim = newer_node if newer_dies else older_node
    for node in (newer_node, older_node):
        await trial.fleet.until_true(partial(trial.fleet.owns, node.name), f"{node.name} owns shards")
    async with trial.flowing():
        await victim.kill()
        trial.failed()
        await trial.goes_on(f"the kill of {victim.name}", TAKEN_S)
    await trial.check()
