"""The examination behind `/v1/alerts`: its parts have time limits of their own."""

import asyncio
from typing import Any, cast

import pytest

from angarium.access import Access
from angarium.api import examination
from angarium.api.examination import Examination
from angarium.api.problems import ProblemRaised
from angarium.operations.installation.doctor.finding import Finding, problem, warning
from angarium.operations.installation.doctor.raised_alerts import ExaminedReceivers
from tests.unit.worlds.virtual_time import in_virtual_time

FOUND = {"problems": [problem("nodes", "none is alive")], "examined_receivers": ExaminedReceivers([], [], 0)}


def takes(monkeypatch: pytest.MonkeyPatch, part: str, time_s: float, found: object) -> None:
    async def examine(_: Access) -> object:
        await asyncio.sleep(time_s)
        return found

    monkeypatch.setattr(examination, part, examine)


@in_virtual_time
async def test_each_part_of_the_examination_has_a_time_limit_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for part, found in FOUND.items():
        takes(monkeypatch, part, 29.0, found)
    seen = await Examination(cast(Access, None)).recent()
    assert seen.findings == FOUND["problems"]


@pytest.mark.parametrize(
    ("slow", "why"),
    [
        ("problems", "the installation was not examined within 30 s"),
        ("examined_receivers", "the receivers were not examined within 30 s"),
    ],
)
@in_virtual_time
async def test_a_part_of_the_examination_that_takes_too_long_is_named(
    monkeypatch: pytest.MonkeyPatch, slow: str, why: str
) -> None:
    for part, found in FOUND.items():
        takes(monkeypatch, part, 31.0 if part == slow else 0.0, found)
    with pytest.raises(ProblemRaised) as raised:
        await Examination(cast(Access, None)).recent()
    assert (raised.value.problem.status, raised.value.problem.detail) == (503, why)


@in_virtual_time
async def test_problems_come_before_the_warnings_of_an_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    late = problem("receivers", "a configuration is not in force")
    found: dict[str, Any] = {
        "problems": [*FOUND["problems"], warning("nodes", "one is drained")],  # type: ignore[misc]
        "examined_receivers": ExaminedReceivers([warning("receivers", "one is behind"), late], [], 0),
    }
    for part, value in found.items():
        takes(monkeypatch, part, 0.0, value)
    seen: list[Finding] = (await Examination(cast(Access, None)).recent()).findings
    assert [each.level for each in seen] == ["problem", "problem", "warning", "warning"]
