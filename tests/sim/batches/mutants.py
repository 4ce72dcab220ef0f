"""The rules of batches, each taken out by itself.

The explorer (`tests.unit.worlds.batches`) finds these and those that need small bounds within seconds.
"""

from tests.sim.batches import scenarios
from tests.sim.mutants.mutant import Mutant
from tests.unit.worlds.batch_rules import RULES


def _mutant(name: str, rule: str, scenario: scenarios.Scenario) -> Mutant:
    return Mutant(f"batch-{name}", rule, RULES[name], scenario)


BATCH_MUTANTS = [
    _mutant("marks", "who stood in one recorded POST that failed stands together in the next",
            scenarios.batch_is_cut_and_the_limit_grows_again),
    _mutant("half-stays", "a half is such a batch too: it never grows again", scenarios.first_half_fails),
    _mutant("mark-pair", "it is known by the first and last number of that POST",
            scenarios.batch_is_cut_and_the_limit_grows_again),
    _mutant("cut-by-config", "an open batch that is larger than allowed now is cut",
            scenarios.batch_is_cut_and_the_limit_grows_again),
    _mutant("lowest-first", "strict: only the batch with the lowest open number may go",
            scenarios.first_half_fails),
    _mutant("token", "every POST takes a token, that of a half, too", scenarios.halves_wait_for_tokens),
    _mutant("adopt-idle", "another order, or another batch, holds only once nothing is in flight",
            scenarios.order_changes_during_a_post),
    _mutant("fold-each", "repeats are judged one by one, with the window as the events before them leave it",
            scenarios.batch_has_an_event_twice),
]  # fmt: skip
