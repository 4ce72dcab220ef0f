"""Nodes with wrong wall clocks, on three servers."""

from functools import partial

import pytest

from tests.support.fleet.sink import Reply
from tests.support.fleet.trial import Trial
from tests.support.processes.nodes import Clock, needs_proc

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.chaos, needs_proc]


@pytest.mark.parametrize(
    "clock",
    [pytest.param(Clock(600), id="ten-minutes-fast"), pytest.param(Clock(0, -3600), id="an-hour-back")],
)
async def test_a_node_has_a_wrong_clock_and_shards_move_from_it_and_to_it(trial: Trial, clock: Clock) -> None:
    """No receiver fails here: the time of a retry goes by the clock of the owner that recorded it."""
    fleet = trial.fleet
    fleet.sink.manners |= {receiver: (lambda _: Reply(delay_s=0.03)) for receiver in fleet.sink.manners}
    wrong = await fleet.start_ready("wrong", clock=clock)
    right = await fleet.start_ready("right")
    async with trial.flowing():
        wrong.step_clock()
        await trial.goes_on("the step")
        for victim, other in ((wrong, right), (right, wrong)):
            await fleet.until_true(partial(fleet.owns, victim.name), f"{victim.name} owns shards")
            await victim.kill()
            trial.failed()
            await fleet.until_true(partial(fleet.owns_all, other.name), f"{other.name} owns all")
            await trial.goes_on(f"{other.name} owns all")
            await fleet.start_ready(victim.name)
    await trial.check(clocks=False)
