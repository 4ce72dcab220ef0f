"""The dashboard of `deploy/grafana`: its form, and the places of its panels."""

from collections import Counter
from typing import Any

import pytest

from tests.support.watching.queries import DASHBOARD, PANELS

COLUMNS = 24
UNITS = {"none", "short", "s", "bytes", "percentunit", "eps", "reqps", "mps"}
"""Units of Grafana that the dashboard uses."""
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SECTIONS = ["Is all well?", "Traffic", "Backlog", "Fleet", "Streams"]
ALL_PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
Cell = tuple[int, int]


def cells(panel: dict[str, Any]) -> list[Cell]:
    """The cells of the grid that a panel covers."""
    at = panel["gridPos"]
    return [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]


def test_panels_cover_one_rectangle_and_no_cell_twice() -> None:
    covered = Counter(cell for panel in ALL_PANELS for cell in cells(panel))
    assert [cell for cell, count in covered.items() if count > 1] == []
    height = max(y for _, y in covered) + 1
    assert covered.keys() == {(x, y) for x in range(COLUMNS) for y in range(height)}


def test_sections_are_in_order_and_open() -> None:
    rows = [each for each in ALL_PANELS if each["type"] == "row"]
    assert [(each["title"], each["collapsed"], each["panels"]) for each in rows] == [
        (title, False, []) for title in SECTIONS
    ]
    places = [(each["gridPos"]["y"], each["gridPos"]["x"]) for each in ALL_PANELS]
    assert places == sorted(places)


def test_ids_and_titles_are_unique() -> None:
    for member in ("id", "title"):
        assert len({each[member] for each in ALL_PANELS}) == len(ALL_PANELS)


@pytest.mark.parametrize("panel", PANELS, ids=lambda each: str(each["title"]))
def test_a_panel_has_a_unit_a_description_and_the_chosen_datasource(panel: dict[str, Any]) -> None:
    assert panel["type"] in {"stat", "timeseries"}
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["description"].endswith(".")
    assert [each["datasource"] for each in (panel, *panel["targets"])] == [DATASOURCE] * (
        1 + len(panel["targets"])
    )
    references = [each["refId"] for each in panel["targets"]]
    assert references == list("ABCD")[: len(references)]
    assert all(each["legendFormat"] for each in panel["targets"]) == (panel["type"] == "timeseries")


def test_the_dashboard_can_be_imported_into_grafana_10_and_11() -> None:
    """A dashboard with an `id` is one of another Grafana; the newest schema of Grafana 10 is 39."""
    assert DASHBOARD["schemaVersion"] == 39
    assert "id" not in DASHBOARD
    assert DASHBOARD["uid"] == "angarium"


def test_the_dashboard_asks_for_a_datasource_and_shows_all_namespaces_at_first() -> None:
    datasource, namespace = DASHBOARD["templating"]["list"]
    assert (datasource["name"], datasource["type"], datasource["query"]) == (
        "datasource", "datasource", "prometheus",
    )  # fmt: skip
    assert (namespace["name"], namespace["datasource"]) == ("namespace", DATASOURCE)
    assert (namespace["allValue"], namespace["current"]["value"]) == (".*", ["$__all"])
