"""The promises in a simulated world: some seeds, the scenarios, and proof that both can fail.

`make sim` and `make sim-mutants` make as many runs as you have patience for.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.machine.event import Event
from actors.machine.facts import OFFLINE_PING, AttemptFailed, EventsNumbered, Missing, Opened
from actors.machine.numbering import Frontier, Numbered
from actors.machine.state import State
from tests.sim import hunt, scenarios
from tests.sim.checks.folded_journals import Deliveries, FoldedJournal
from tests.sim.checks.storage import DeliveriesKept
from tests.sim.hunt import violation
from tests.sim.mutants import catalogue
from tests.sim.mutants.mutant import Mutant
from tests.sim.run import Run
from tests.sim.scenarios.recovery import repairs
from tests.sim.world.world import RunFailed

ROOT = Path(__file__).parents[2]
SEEDS = 10
AT_ONCE = 5
QUICKLY_FOUND = {
    "ack-before-confirmed": 6, "left-before-parked": 13, "live-snapshots": 17, "checkpoint-ahead": 6,
    "unparked-early": 1, "rate-unconfirmed": 27, "burst-after-a-takeover": 20, "stray-without-letter": 11,
    "stray-by-its-subject": 27,
}  # fmt: skip
"""Rules, and a seed with which a run meets what is wrong without them."""
SEEDS_MAX = 70
"""After a change of the product others do: then the runs up to this one are made."""
STAGED = [mutant for mutant in catalogue.ALL if mutant.scenario is not None]


@pytest.mark.parametrize("first", range(1, SEEDS, AT_ONCE))
def test_the_promises_hold_under_all_faults(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        assert not violation(seed)


@pytest.mark.parametrize("scenario", scenarios.ALL, ids=lambda scenario: scenario.__name__)
def test_the_scenarios_pass(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.soak
def test_a_repair_is_cut_off_anywhere() -> None:
    repairs.repair_is_cut_off_anywhere()


@pytest.mark.parametrize("mutant", STAGED, ids=lambda mutant: mutant.name)
def test_a_scenario_fails_without_its_rule(mutant: Mutant) -> None:
    assert mutant.scenario is not None
    with mutant(), pytest.raises(RunFailed):
        mutant.scenario()


@pytest.mark.parametrize(("name", "known"), QUICKLY_FOUND.items(), ids=QUICKLY_FOUND)
def test_a_rule_that_is_taken_out_is_missed(name: str, known: int) -> None:
    with catalogue.BY_NAME[name]():
        assert any(violation(seed) for seed in (known, *range(1, SEEDS_MAX)))


def test_both_streams_are_purged_in_runs() -> None:
    """Otherwise purges would not be judged. Few runs are needed; after a change of the product, others."""
    journal, deliveries = 0, 0
    for seed in (4, 5, *range(13, 60)):
        if journal > 5 and deliveries > 5:
            break
        run = Run(seed)
        run.run()
        journal += run.checkers.journal_kept.purges
        deliveries += run.checkers.deliveries_kept.purges
    assert journal > 5
    assert deliveries > 5


def test_a_checkpoint_behind_the_journal_needs_no_duplicate_of_its_own_time() -> None:
    """The window may have lost the duplicate's id by the time the checkpoint is stored."""
    deliveries, receiver = Deliveries(), "acme.r0"
    for position, event_id in enumerate(("a", "a", "b"), 1):
        deliveries.add(receiver, Event(position=position, id=event_id, stored_at=0.0, body=b""))
    journal = FoldedJournal(0, deliveries, pytest.fail)
    before = State(receiver=receiver, parked=True, frontier=Frontier(position=1, sequence=1))
    numbering = journal.numbering(receiver)
    numbering.take(Opened(receiver=receiver, at=0.0, position=0, window=1), set())
    for sequence, position, event_id in ((1, 1, "a"), (2, 3, "b")):
        number = Numbered(sequence=sequence, position=position, id=event_id, stored_at=0.0)
        numbering.take(EventsNumbered(receiver=receiver, events=(number,)), set())
    kept = DeliveriesKept(deliveries, lambda _: journal, pytest.fail)
    assert kept.needed(before) == 3


def test_messages_go_missing_in_runs() -> None:
    """The record contains everything known about lost messages.

    Only a few runs lose messages. A change of the product changes which: then more than the first are made.
    """
    missing = 0
    for seed in (27, *range(100, 160)):
        if missing >= 3:
            break
        run = Run(seed)
        run.workload.deletes = True
        run.run()
        flushes = [flush for journal in run.checkers.journals for _, flush in journal.flushes]
        missing += sum(isinstance(fact, Missing) for flush in flushes for fact in flush.facts)
    assert missing >= 3


def test_offline_receivers_are_pinged_in_runs() -> None:
    """Few runs have a receiver that is offline for long enough; after a change of the product, others."""
    pinged = 0
    for seed in (27, 48, *range(100, 160)):
        if pinged >= 3:
            break
        run = Run(seed)
        run.run()
        flushes = [flush for journal in run.checkers.journals for _, flush in journal.flushes]
        facts = [fact for flush in flushes for fact in flush.facts]
        pinged += sum(isinstance(fact, AttemptFailed) and fact.kind == OFFLINE_PING for fact in facts)
    assert pinged >= 3


def test_a_run_is_the_same_with_every_hash_seed() -> None:
    program = (
        "from tests.sim.run import Run; run = Run(7, trace=True); run.run(); "
        "print(*run.world.history(), sep='\\n')"
    )
    histories = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert histories[0] == histories[1]
    assert histories[0].count(b"START") > 10


def test_a_mutant_is_not_convicted_of_a_failure_of_the_product_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise RunFailed("it is not quiet")

    monkeypatch.setattr(hunt, "Run", lambda seed: SimpleNamespace(run=fail))
    finding = hunt.violation_by(("rebase", 1))
    assert finding == hunt.Finding("seed 1", "it is not quiet", product="it is not quiet")
