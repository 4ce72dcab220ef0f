"""A node that has learnt a receiver's hidden limit is killed with -9: another one continues with it."""

import time
from itertools import pairwise
from statistics import median

from tests.support.fleet.fleet import Fleet
from tests.support.fleet.load import Load
from tests.support.fleet.records import Arrival
from tests.support.fleet.sink import Reply

RECEIVER = "t.hidden"
LIMIT, WINDOW_S = 20, 2
"""Requests a second that it takes, on average over the window. It says nothing about that."""
EVENTS = 500
CONTINUED = 40
"""Arrivals after the takeover by which the pace is judged."""
BEGINNING = 18
"""The first of them: a node that has to learn the limit again would take 3 s for these."""


class HiddenLimit:
    """Answers 429 to what comes beyond the limit; 0.1 s for each other answer."""

    def __init__(self) -> None:
        self.accepted_at = list[float]()

    def answer(self, _: int) -> Reply:
        now = time.monotonic()
        lately = sum(at > now - WINDOW_S for at in self.accepted_at[-LIMIT * WINDOW_S :])
        if lately >= LIMIT * WINDOW_S:
            return Reply(status=429)
        self.accepted_at.append(now)
        return Reply(delay_s=0.1)


async def learnt_rate(fleet: Fleet) -> float:
    """The learnt rate as `inspect` shows it; 0.0 if trouble has not set one yet."""
    pace = (await fleet.ask("inspect", RECEIVER))["pace"]
    return 0.0 if pace is None or pace["limited_by"] != "smart" else float(pace["effective_limit"])


async def test_a_hidden_limit_that_is_learnt_survives_a_kill_of_the_node(fleet: Fleet) -> None:
    """A node that knew nothing would begin at 5 a second, and one without any pace would be refused a lot."""
    receiver, arrivals = HiddenLimit(), fleet.sink.arrivals[RECEIVER]
    fleet.sink.manners[RECEIVER] = receiver.answer
    await fleet.configure(
        [RECEIVER],
        order="relaxed",
        concurrency=16,
        adaptive={"smart": True},
        retry={"base_s": 0.2, "cap_s": 0.5},
    )
    load = Load(fleet, [RECEIVER], [RECEIVER])
    await load.publish(EVENTS)
    first = await fleet.start_ready("one")
    await fleet.until(lambda: any(each.status == 429 for each in arrivals), "the limit is found")
    found_by = len(arrivals)
    await fleet.until(lambda: len(arrivals) >= found_by + CONTINUED, "attempts come at the learnt pace")
    before = await learnt_rate(fleet)
    assert 8 <= before <= LIMIT * 1.1
    await first.kill()
    taken_over_by = len(arrivals)
    await fleet.start_ready("two")
    await fleet.until(lambda: len(arrivals) >= taken_over_by + CONTINUED, "the other node continues")
    after = await learnt_rate(fleet)
    continued = arrivals[taken_over_by:]
    assert {each.by for each in continued} == {"two"}
    assert before / 2 <= after <= LIMIT * 1.2  # A busy machine makes it look slow.
    assert refused(continued) <= 2
    assert before / 2 <= per_second(continued[:BEGINNING]) <= 1.5 * after


def refused(arrivals: list[Arrival]) -> int:
    return sum(each.status == 429 for each in arrivals)


def per_second(arrivals: list[Arrival]) -> float:
    """The rate by what most attempts had to wait: a busy machine delays some of them."""
    return 1 / median(later.at - earlier.at for earlier, later in pairwise(arrivals))
