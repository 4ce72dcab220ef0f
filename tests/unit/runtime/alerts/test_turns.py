"""The turns of a round: whose alerts change in it if more have to than may."""

from actors.runtime.alerts.turns import CHANGED_IN_A_ROUND_MAX, CHANGED_OF_A_TENANT_MAX, AlertTurns

MANY = 3 * CHANGED_OF_A_TENANT_MAX


def turns(*waiting: tuple[str, float]) -> list[str]:
    found = AlertTurns()
    for receiver, raised_at in waiting:
        found.add(receiver, raised_at)
    return found.first()


def test_within_a_tenant_a_receiver_goes_first_whose_last_alert_is_the_longest_ago() -> None:
    flapping = [(f"acme.flaps{number}", 100.0 + number) for number in range(MANY)]
    chosen = turns(*flapping, ("acme.old", 5.0), ("acme.new", 0.0))
    assert chosen == ["acme.new", "acme.old", *[name for name, _ in flapping[: CHANGED_OF_A_TENANT_MAX - 2]]]


def test_receivers_without_an_alert_go_first_come_first_served() -> None:
    waiting = [f"acme.r{number}" for number in range(MANY)]
    assert turns(*[(each, 0.0) for each in waiting]) == waiting[:CHANGED_OF_A_TENANT_MAX]


def test_tenants_take_turns_and_a_round_is_bounded() -> None:
    """A tenant with one receiver waits for no other one's second."""
    large = [(f"t{tenant}.r{number}", 0.0) for tenant in range(40) for number in range(MANY)]
    chosen = turns(*large, ("small.one", 99.0))
    assert len(chosen) == CHANGED_IN_A_ROUND_MAX
    assert chosen[:41] == [f"t{tenant}.r0" for tenant in range(40)] + ["small.one"]
    assert chosen[41:43] == ["t0.r1", "t1.r1"]
