"""Rules about what is given up, discarded and buried, each taken out by itself."""

from actors import commands as c
from actors import facts, receiver, shell
from actors.facts import Burial
from actors.policy import Policy
from actors.receiver import next_step
from actors.shell import Shell
from actors.state import State
from streams.answers import StoredMessage
from streams.graveyard import Graveyard
from tests.sim.mutant import Mutant
from tests.sim.scenarios import backlogs


def _bury_at_once(state: State, policy: Policy | None, view: c.View, now: float) -> c.Step:
    if state.burials and not view.burying:
        return c.Bury(state.burials)
    return next_step(state, policy, view, now)


_publish = Graveyard._publish


async def _publish_once(
    graveyard: Graveyard, receiver: str, burial: Burial, message: StoredMessage | None
) -> None:
    await _publish(graveyard, receiver, burial, message)


async def _waiting_by_replica(actor: Shell, to: int) -> int:
    backlog, after = actor.host.backlog, actor.state.frontier.position
    return await backlog.count(actor.receiver, after) - await backlog.count(actor.receiver, to)


BACKLOG_MUTANTS = [
    Mutant("buried-unconfirmed", "a dead letter is a fact first, confirmed, and then buried",
           ((shell, "next_step", _bury_at_once),),
           backlogs.death_is_lost),
    Mutant("buried-unstored", "a burial is repeated until it is stored",
           ((Graveyard, "_publish", _publish_once),)),
    Mutant("forgot-unconfirmed", "Forgot is confirmed before anything is posted beyond it",
           ((shell, "UNHURRIED", (*receiver.UNHURRIED, facts.Forgot)),),
           backlogs.forgetting_is_lost),
    Mutant("gap-by-replica", "what is forgotten leaves room for all that may have been posted",
           ((Shell, "_waiting", _waiting_by_replica),),
           backlogs.forgotten_by_a_lagging_replica),
    Mutant("put-again-unseen", "a receiver that was put again is removed first",
           ((Shell, "_removal", property(lambda actor: 0)),),
           backlogs.put_again_at_once),
]  # fmt: skip
