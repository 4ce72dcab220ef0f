"""Rules about names that nobody knows, each taken out by itself."""

from actors.runtime.host import Host
from actors.runtime.strangers import PAGE, Strangers
from actors.runtime.unacked import Bindings
from streams.receivers import Receivers
from tests.sim.mutant import Mutant
from tests.sim.scenarios import strangers

_turn_away = Strangers._turn_away


def _turn_away_and_bury(record: Strangers, covered: list[int]) -> None:
    _turn_away(record, covered)
    if not record.burying and not record.host.stopped and record.state.burials:
        record.burying = True
        record.host.spawn(record._bury(record.state.burials[:PAGE]))


async def _know_enough(receivers: Receivers) -> None:
    """What was heard by now will do."""


STRANGER_MUTANTS = [
    Mutant("strangers-buried-unconfirmed", "who is turned away is buried once that is confirmed",
           ((Strangers, "_turn_away", _turn_away_and_bury),),
           strangers.refusal_is_lost),
    Mutant("strangers-first", "nobody is turned away above what is held for an actor",
           ((Bindings, "lowest_but", lambda bindings, receiver: float("inf")),),
           strangers.behind_one_that_is_slow),
    Mutant("strangers-delivered-later", "a name that is put is opened above all that was turned away",
           ((Host, "released_to", Host.released_by_journal),),
           strangers.put_before_the_refusal_is_on_record),
    Mutant("strangers-unasked", "nobody is turned away before the leader has spoken",
           ((Receivers, "catch_up", _know_enough),),
           strangers.put_unheard),
]  # fmt: skip
