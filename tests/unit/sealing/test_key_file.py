"""The key file: what a line may be, who may read it, and errors that show no key."""

import base64
import os
import re
from pathlib import Path

import pytest

from angarium.access import key_file
from angarium.file_value import UnusableSetting
from angarium.settings import Settings
from streams.sealing.key_file import KEYS_MAX, new_key_line, parsed_keys, read_key_file

KEY = base64.b64encode(b"k" * 32).decode()


def file_with(directory: Path, text: str, mode: int = 0o600) -> str:
    path = directory / "keys"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_the_first_key_is_the_present_one(tmp_path: Path) -> None:
    lines = ["# the keys of production", "", f"two {KEY}", f"  one\t{KEY}  ", "#one is old"]
    keys = read_key_file(file_with(tmp_path, "\n".join(lines)))
    assert (repr(keys), keys.present) == ("Keys(two, one)", "two")


def test_a_new_line_is_a_key_that_no_other_line_has(tmp_path: Path) -> None:
    lines = [new_key_line(f"k{number}") for number in range(KEYS_MAX)]
    assert len(set(parsed_keys("\n".join(lines)).values())) == KEYS_MAX
    assert [len(key) for key in parsed_keys(lines[0]).values()] == [32]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no key; angarium key new makes one"),
        ("# nothing", "has no key"),
        (f"one {KEY}\none {KEY}", "line 2: there are two keys with this id"),
        (f"one {KEY} more", "line 1: must be an id"),
        (KEY, "line 1: must be an id"),
        (f"o.ne {KEY}", "line 1: must be an id"),
        (f"{'a' * 33} {KEY}", "line 1: must be an id"),
        (f"one {KEY[:-2]}", "line 1: the key is not base64"),
        ("one c2hvcnQtYnV0LXNlY3JldA==", "line 1: the key has 16 bytes, not 32"),
        ("\n".join(f"k{number} {KEY}" for number in range(9)), "has 9 keys, at most 8"),
        ("x" * 20_000, "is larger than 16384 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_shows_no_key(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as refused:
        read_key_file(file_with(tmp_path, text))
    assert KEY[:8] not in str(refused.value)
    assert "c2hv" not in str(refused.value)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"\xff\xfe" * 32)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="is not text"):
        read_key_file(str(path))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_of_ours_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = file_with(tmp_path, f"one {KEY}", mode)
    with pytest.raises(ValueError, match=rf"others can use it \(mode {mode:04o}\); chmod 600 it"):
        read_key_file(path)


def test_a_file_of_another_user_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes mounts secrets that root owns and all users of the container can read."""
    path = file_with(tmp_path, f"one {KEY}", 0o644)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(path).st_uid + 1)
    assert read_key_file(path).present == "one"


def test_the_setting_names_the_file_and_the_reason(tmp_path: Path) -> None:
    assert key_file(Settings()).value.present is None
    path = file_with(tmp_path, f"one {KEY}", 0o644)
    with pytest.raises(UnusableSetting, match=r"key_file: others can use it") as refused:
        key_file(Settings(key_file=path))
    assert KEY not in str(refused.value)
    with pytest.raises(UnusableSetting, match="key_file: file: No such file"):
        key_file(Settings(key_file=str(tmp_path / "none")))


def test_a_file_with_another_key_is_read_again(tmp_path: Path) -> None:
    found = key_file(Settings(key_file=file_with(tmp_path, f"one {KEY}")))
    assert not found.refresh()
    file_with(tmp_path, f"two {KEY}\none {KEY}\n")
    assert found.refresh()
    assert found.value.present == "two"
    file_with(tmp_path, "two broken")
    assert not found.refresh()
    assert found.value.present == "two"
