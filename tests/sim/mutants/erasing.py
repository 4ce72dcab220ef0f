"""Rules about what is erased, each taken out by itself."""

from actors.runtime.actor import Actor
from actors.runtime.host import Host
from actors.runtime.operator_actions import end_deliveries
from tests.sim.mutants.mutant import Mutant
from tests.sim.scenarios import erasing


async def _unnumbered(actor: Actor, position: int) -> bool:
    return position <= actor.state.frontier.position


async def _at_once(host: Host, index: int) -> None:
    return


ERASE_MUTANTS = [
    Mutant("erased-unnumbered", "what an owner may have posted has its number before it is erased",
           ((end_deliveries, "settle_in_order", _unnumbered),),
           erasing.posted_event_is_erased),
    Mutant("erased-unconfirmed", "a message is erased only when it is recorded that its event is over",
           ((Host, "confirmed_to", _at_once),),
           erasing.event_is_erased_before_its_end_is_recorded),
]  # fmt: skip
