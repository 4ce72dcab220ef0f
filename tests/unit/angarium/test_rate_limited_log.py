"""Warnings that others can cause: few lines, and every occurrence is counted."""

import asyncio
import logging
from typing import Any

import pytest

from actors.machine.alerts.health_changes import HealthChange, HealthChangeName
from angarium.node.health_log import BURST_MAX, TENANTS_MAX, HealthLog
from angarium.rate_limited_log import RateLimitedLog
from streams.routing.selection.selection_totals import FailedFilter
from tests.unit.worlds.virtual_time import in_virtual_time

LOG = logging.getLogger("angarium.test")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[Any, Any]]:
    return [(record.__dict__["position"], record.__dict__.get("count", 1)) for record in caplog.records]


@in_virtual_time
async def test_the_first_of_many_is_logged_and_then_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn = RateLimitedLog(LOG, "event.misaddressed")
    for position in range(1000):
        warn(position=position)
    assert told(caplog) == [(0, 1)]
    await asyncio.sleep(1.5)
    warn(position=1000)
    assert told(caplog) == [(0, 1), (999, 999)]
    await asyncio.sleep(1)
    assert told(caplog) == [(0, 1), (999, 999), (1000, 1)]
    await asyncio.sleep(5)
    warn(position=1001)
    assert told(caplog)[3:] == [(1001, 1)]


@in_virtual_time
async def test_a_line_for_one_occurrence_has_no_count(caplog: pytest.LogCaptureFixture) -> None:
    RateLimitedLog(LOG, "receiver.offline")(receiver="acme.billing")
    assert "count" not in caplog.records[0].__dict__


@in_virtual_time
async def test_the_traceback_of_the_latest_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    warn = RateLimitedLog(LOG, "api.broken")
    errors = [RuntimeError(str(number)) for number in range(3)]
    for position, error in enumerate(errors):
        warn(error, position=position)
    await asyncio.sleep(1.5)
    assert told(caplog) == [(0, 1), (2, 2)]
    assert [each.exc_info[1] for each in caplog.records if each.exc_info] == [errors[0], errors[2]]


@in_virtual_time
async def test_a_burst_is_told_one_by_one_and_comes_back_with_time(caplog: pytest.LogCaptureFixture) -> None:
    warn = RateLimitedLog(LOG, "receiver.offline", burst=3)
    for position in range(10):
        warn(position=position)
    assert told(caplog) == [(0, 1), (1, 1), (2, 1)]
    await asyncio.sleep(1.5)
    assert told(caplog)[3:] == [(9, 7)]
    await asyncio.sleep(2)
    for position in range(20, 24):
        warn(position=position)
    assert told(caplog)[4:] == [(20, 1), (21, 1)]
    await asyncio.sleep(10)
    assert told(caplog)[6:] == [(23, 2)]
    assert warn.is_idle


# ---- changes of the health of receivers


def change(receiver: str, name: HealthChangeName = "offline") -> HealthChange:
    return HealthChange(
        name=name, receiver=receiver, why="no success for 5m; HTTP 500", since=1_700_000_000.0
    )


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{each.levelname} {each.getMessage()} {each.__dict__['receiver']}" for each in caplog.records]


@in_virtual_time
async def test_a_change_of_health_is_logged_in_full(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tell = HealthLog()
    tell(change("acme.billing"))
    tell(change("acme.billing", "recovered"))
    assert lines(caplog) == ["WARNING receiver.offline acme.billing", "INFO receiver.recovered acme.billing"]
    assert caplog.records[0].__dict__["since"] == "2023-11-14T22:13:20.000Z"
    assert caplog.records[0].__dict__["why"] == "no success for 5m; HTTP 500"


@in_virtual_time
async def test_ten_thousand_that_flap_neither_flood_the_log_nor_hide_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tell = HealthLog()
    for _ in range(10):
        for number in range(10_000):
            tell(change(f"hostile.r{number}"))
        tell(change("acme.billing"))
        await asyncio.sleep(1)
    assert sum(" acme.billing" in line for line in lines(caplog)) == 10
    assert sum(" hostile." in line for line in lines(caplog)) <= BURST_MAX + 10


@in_virtual_time
async def test_a_quiet_tenant_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    tell = HealthLog()
    for number in range(3 * TENANTS_MAX):
        tell(change(f"t{number}.r"))
        await asyncio.sleep(0.1)
    assert len(caplog.records) == 3 * TENANTS_MAX
    assert len(tell._lines) <= TENANTS_MAX


@in_virtual_time
async def test_a_filter_that_cannot_be_evaluated_is_logged_with_its_receiver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tell = HealthLog()
    failed = FailedFilter(("acme.billing", "acme.other"), "order.paid", 7, "failed", "abs() takes a number")
    for _ in range(1000):
        tell.filter_failed(failed)
    assert len(caplog.records) == BURST_MAX
    line = caplog.records[0]
    assert (line.getMessage(), line.__dict__["receiver"]) == ("receiver.filter_failed", "acme.billing")
    told = {name: line.__dict__[name] for name in ("type", "position", "reason", "why", "others")}
    assert told == {
        "type": "order.paid", "position": 7, "reason": "failed", "why": "abs() takes a number", "others": 1,
    }  # fmt: skip
