"""Repairs of an actor: what it records when an operator accepts a loss.

Where the deliveries lost their tail, everything beyond the last position that is known to be the same is read
again, and numbers go on above all that were ever given: also those that an owner gave who vanished, and whose
facts are lost. Whether there was one is not asked: a clean claim may hide an unclean one before it.
"""

from actors.machine.bucket import Bucket
from actors.machine.facts import RemovalSet, Repaired
from actors.machine.state import State

UNRECORDED_MAX = 512
"""Numbers that one owner may have given and not recorded: 256 that are settled, 256 that are open."""


def repair(state: State, *, position: int, gap: int, at: float, epoch: int) -> Repaired | None:
    """The fact that brings the actor back to `position`; None where it never got anything.

    `gap` numbers are left out.
    """
    known = {each.position for each in state.open} | {each.position for each in state.burials}
    dropped = {each for each in known if each > position}
    untouched = state.frontier.position <= position and not dropped
    if untouched and not (state.opened or state.frontier.sequence):
        return None
    return Repaired(
        receiver=state.receiver,
        at=at,
        position=position,
        next_sequence=state.frontier.sequence + gap + 1,
        dropped=tuple(sorted(dropped)),
        # Tokens may have been taken for what is lost, and on no record.
        bucket=Bucket(0.0, at, epoch) if state.bucket else None,
    )


def set_removal(state: State, *, restored: int, at: float) -> RemovalSet | None:
    """The fact by which the actor goes on with another bucket of configurations; None where nothing changes.

    Removals up to the revision `restored` came into it from the one before. Later ones have yet to be obeyed.
    """
    removal = min(state.removal, restored)
    return None if removal == state.removal else RemovalSet(receiver=state.receiver, at=at, removal=removal)
