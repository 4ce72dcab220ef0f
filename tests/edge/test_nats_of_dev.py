"""Commands use the NATS of the `angarium dev` that runs in their directory, unless told otherwise."""

import os
from pathlib import Path

import msgspec
import pytest

from angarium.cli.invocation import options
from angarium.development.directory import DirectoryOwner, hold_directory

URL = "nats://127.0.0.1:4223"


def nats(**given: object) -> tuple[str, ...]:
    return options.settings_of(given).nats


def test_the_nats_of_a_running_dev_is_the_usual_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANGARIUM_NATS", raising=False)
    usual = nats()
    with hold_directory(tmp_path / ".angarium") as directory:
        assert nats() == usual
        directory.write_owner(f"{URL},{URL}4")
        assert nats() == (URL, f"{URL}4")
        assert (tmp_path / ".angarium" / "dev.pid").read_text() == f"{os.getpid()}\n"
        assert nats(nats="nats://example.com:4222") == ("nats://example.com:4222",)
        monkeypatch.setenv("ANGARIUM_NATS", usual[0])
        assert nats() == usual
    assert not (tmp_path / ".angarium" / "dev.pid").exists()


@pytest.mark.parametrize("content", [b"", b"{", msgspec.json.encode(DirectoryOwner(2**22 + 1, URL))])
def test_the_file_of_a_dead_dev_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANGARIUM_NATS", raising=False)
    usual = nats()
    (tmp_path / ".angarium").mkdir()
    (tmp_path / ".angarium" / "dev.json").write_bytes(content)
    assert nats() == usual
