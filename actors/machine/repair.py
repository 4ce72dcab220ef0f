"""Repairs of an actor: the facts that it records when an operator accepts a loss.

If the deliveries lost their tail, everything beyond the last position that is known to be unchanged is read
again. Numbers continue above all that were ever given, even by an owner that vanished and whose facts are
lost. Nothing checks whether there was such an owner: a clean claim may hide an unclean one before it.
"""

from actors.machine.bucket import Bucket
from actors.machine.facts import RemovalSet, Repaired
from actors.machine.state import State


def repair(state: State, *, position: int, gap: int, at: float, epoch: int) -> Repaired | None:
    """The fact that brings the actor back to `position`; None if it never got anything.

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
        # Tokens may have been taken for lost attempts, without a record.
        bucket=Bucket(0.0, at, epoch) if state.bucket else None,
    )


def set_removal(state: State, *, restored: int, at: float) -> RemovalSet | None:
    """The fact by which the actor continues with another bucket of configurations; None if nothing changes.

    Removals up to the revision `restored` come from the old bucket. Later ones are still to be carried out.
    """
    removal = min(state.removal, restored)
    return None if removal == state.removal else RemovalSet(receiver=state.receiver, at=at, removal=removal)
