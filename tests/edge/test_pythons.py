"""The Pythons that `make test-pythons` finds: those on PATH that run, and those of pyenv."""

import subprocess
import sys
from pathlib import Path

import pytest

PYTHONS = Path(__file__).parents[2] / ".ci" / "pythons"
CURRENT = f"{sys.version_info.major}.{sys.version_info.minor}"
PYENV = """
case "$1 $2" in
  "versions --bare") printf '%s\\n' 3.2.9 3.20.9 pypy3.10-7.3 ;;
  "prefix 3.20.9") echo {directory} ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}:/usr/bin:/bin"


def program(file: Path, script: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def found(path: str, *version: str) -> list[str]:
    done = subprocess.run([PYTHONS, *version], env={"PATH": path}, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_a_python_on_path_is_found(tmp_path: Path, path: str) -> None:
    program(tmp_path / f"python{CURRENT}", f'exec {sys.executable} "$@"')
    assert f"{CURRENT} {sys.executable}" in found(path)
    assert found(path, CURRENT) == [sys.executable]


def test_a_python_that_does_not_run_or_is_another_version_is_not_found(tmp_path: Path, path: str) -> None:
    program(tmp_path / "python3.19", "echo 'pyenv: python3.19: command not found' >&2; exit 127")
    program(tmp_path / "python3.20", f'exec {sys.executable} "$@"')
    assert not [line for line in found(path) if line.startswith(("3.19", "3.20"))]
    assert found(path, "3.19") == []


def test_pythons_of_pyenv_are_found(tmp_path: Path, path: str) -> None:
    program(tmp_path / "pyenv", PYENV.format(directory=tmp_path / "twenty"))
    program(tmp_path / "twenty" / "bin" / "python", "echo /there/python")
    assert "3.20 /there/python" in found(path)
    assert found(path, "3.20") == ["/there/python"]
