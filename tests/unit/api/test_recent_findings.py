"""The checks behind `/v1/alerts`: their parts have time limits of their own."""

import asyncio
from typing import Any, cast

import pytest

from angarium.access import Access
from angarium.api import recent_findings
from angarium.api.problems import ProblemRaised
from angarium.api.recent_findings import RecentFindings
from angarium.operations.installation.doctor.findings import Finding, problem, warning
from angarium.operations.installation.doctor.raised_alerts import CheckedReceivers
from tests.unit.worlds.virtual_time import in_virtual_time

FOUND = {
    "installation_problems": [problem("nodes", "no node is alive")],
    "checked_receivers": CheckedReceivers([], [], 0),
}


def takes(monkeypatch: pytest.MonkeyPatch, part: str, time_s: float, found: object) -> None:
    async def check(_: Access) -> object:
        await asyncio.sleep(time_s)
        return found

    monkeypatch.setattr(recent_findings, part, check)


@in_virtual_time
async def test_each_part_of_the_checks_has_a_time_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for part, found in FOUND.items():
        takes(monkeypatch, part, 29.0, found)
    seen = await RecentFindings(cast(Access, None)).get()
    assert seen.findings == FOUND["installation_problems"]


@pytest.mark.parametrize(
    ("slow", "why"),
    [
        ("installation_problems", "the installation was not checked within 30 s"),
        ("checked_receivers", "the receivers were not checked within 30 s"),
    ],
)
@in_virtual_time
async def test_a_part_of_the_checks_that_takes_too_long_is_named(
    monkeypatch: pytest.MonkeyPatch, slow: str, why: str
) -> None:
    for part, found in FOUND.items():
        takes(monkeypatch, part, 31.0 if part == slow else 0.0, found)
    with pytest.raises(ProblemRaised) as raised:
        await RecentFindings(cast(Access, None)).get()
    assert (raised.value.problem.status, raised.value.problem.detail) == (503, why)


@in_virtual_time
async def test_problems_come_before_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    late = problem("receivers", "a configuration is not in force")
    found: dict[str, Any] = {
        "installation_problems": [
            *FOUND["installation_problems"],  # type: ignore[misc]
            warning("nodes", "one is drained"),
        ],
        "checked_receivers": CheckedReceivers([warning("receivers", "one is behind"), late], [], 0),
    }
    for part, value in found.items():
        takes(monkeypatch, part, 0.0, value)
    seen: list[Finding] = (await RecentFindings(cast(Access, None)).get()).findings
    assert [each.level for each in seen] == ["problem", "problem", "warning", "warning"]
