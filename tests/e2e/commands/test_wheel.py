"""The wheel as a newcomer installs it: its contents. `test_demo` shows that it runs."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.processes import wheel
from tests.support.processes.commands import ROOT

FLOORS = ("actors", "streams", "angarium")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_three_packages_with_their_types_and_nothing_else(built: Path) -> None:
    names = ZipFile(built).namelist()
    assert {name.split("/")[0] for name in names} == {*FLOORS, built.name.split("-py3")[0] + ".dist-info"}
    assert {f"{floor}/py.typed" for floor in FLOORS} <= set(names)
    assert {"angarium/demo/payloads/payloads.jsonl", "angarium/demo/payloads/README.md"} <= set(names)
    kinds = {Path(name).suffix for name in names if ".dist-info" not in name}
    assert kinds == {".py", ".typed", ".jsonl", ".md", ".html", ".css", ".js", ".svg"}
    console = {path.relative_to(ROOT).as_posix() for path in (ROOT / "angarium/console").glob("*/*.*")}
    assert {name for name in console if not name.endswith(".pyc")} <= set(names)


def test_the_wheel_of_the_kit_needs_nothing_and_has_types(tmp_path: Path) -> None:
    built = wheel.build(tmp_path, ROOT / "kit")
    with ZipFile(built) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
    assert {name.split("/")[0] for name in names} == {
        "angarium_receiver",
        built.name.split("-py3")[0] + ".dist-info",
    }
    assert "angarium_receiver/py.typed" in names
    assert "Requires-Dist" not in metadata
    assert "Requires-Python: >=3.9" in metadata
