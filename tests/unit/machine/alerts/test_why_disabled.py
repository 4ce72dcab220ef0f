"""Why a receiver is disabled: an alert about it gives the reason that was recorded."""

from typing import get_args

import pytest
from msgspec.structs import replace

from actors.configuration.policy import AlertLimits
from actors.machine import commands as c
from actors.machine import facts as f
from actors.machine.alerts.judging import alert_changes
from actors.machine.state import State
from tests.unit.worlds.values import policy

START = 1_800_000_000.0
OPENED = State(receiver="acme.billing", opened=True)


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("gone", "it answered 410"), ("asked", "it answered angarium-disable"),
        ("failing", "it failed for too long"), ("of a newer version", "of a newer version"),
    ],
)  # fmt: skip
def test_an_alert_says_why_the_receiver_is_disabled(reason: str, why: str) -> None:
    disabled = replace(OPENED, disabled=reason, disabled_at=START)
    (raised,) = alert_changes(
        disabled, policy(), c.JudgeAlerts(limits=AlertLimits(), watched_since=START), START + 1
    )
    assert isinstance(raised, f.AlertRaised)
    assert (raised.alert, raised.why, raised.since) == ("disabled", why, START)


def test_each_reason_that_disables_a_receiver_has_words() -> None:
    assert set(get_args(f.DisabledReason)) == set(f.DISABLED_WHY)
