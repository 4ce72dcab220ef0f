"""The settings file in `deploy/`: every setting is shown with its default."""

import re
import tomllib
from pathlib import Path

import msgspec

from angarium import settings
from angarium.settings import Settings
from tests.support.processes.roles import DEPLOY


def test_the_settings_file_shows_every_setting_with_its_default(tmp_path: Path) -> None:
    shown = (DEPLOY / "angarium.toml").read_text()
    fields = msgspec.structs.fields(Settings)
    assert re.findall(r"^#(\w+) = ", shown, re.MULTILINE) == [field.name for field in fields]
    assert tomllib.loads(re.sub(r"^#(?=\w+ = )", "", shown, flags=re.MULTILINE))
    with_default = "|".join(field.name for field in fields if field.default not in (None, msgspec.NODEFAULT))
    config = tmp_path / "angarium.toml"
    config.write_text(re.sub(rf"^#(?=({with_default}) = )", "", shown, flags=re.MULTILINE))
    assert settings.load({"config": str(config), "node": "n"}, {}) == Settings(node="n")


def test_the_settings_file_as_it_is_changes_nothing() -> None:
    given = {"config": str(DEPLOY / "angarium.toml"), "node": "n"}
    assert settings.load(given, {}) == Settings(node="n")
