"""The state after a fact, where a second fact of the same kind says nothing new."""

from actors.machine import facts as f
from actors.machine.evolve import evolve
from actors.machine.state import State
from tests.unit.worlds.values import NOW


def test_a_receiver_stays_disabled_since_the_first_time() -> None:
    state = State(receiver="acme.billing")
    for at in (NOW, NOW + 5):
        state = evolve(state, f.Disabled(receiver="acme.billing", at=at, reason="gone"))
    assert (state.disabled, state.disabled_at) == ("gone", NOW)
    state = evolve(state, f.Resumed(receiver="acme.billing", at=NOW + 6))
    assert (state.disabled, state.disabled_at) == ("", None)
    assert (
        evolve(state, f.Disabled(receiver="acme.billing", at=NOW + 7, reason="gone")).disabled_at == NOW + 7
    )
