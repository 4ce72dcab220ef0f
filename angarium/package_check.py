"""Checks that the packages `actors` and `streams` are ours.

Anyone may use these names. Another package of such a name may come earlier on the path (the
directory that `python -m angarium` was started in, `PYTHONPATH`, the site-packages next to an editable
install), or be installed over ours, into the same directory. It would be imported in place of ours and fail
with errors that are hard to read. So this is checked before anything is imported.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

OWN_PACKAGES = ("actors", "streams")
_OWN_WORD = b"Angarium"
"""A word in the first line of each of our packages."""
_MISSING = "is missing"
_REMEDY = "install angarium in its own environment (pipx or a venv)"
_HOME = Path(__file__).resolve().parent.parent


def foreign_packages() -> list[str]:
    """One sentence for each package that is missing or not ours; the last one ends with the remedy."""
    found = [problem for name in OWN_PACKAGES if (problem := _problem(name)) is not None]
    if not found:
        return []
    remedy = "install angarium again" if all(each.endswith(_MISSING) for each in found) else _REMEDY
    return [*found[:-1], f"{found[-1]}; {remedy}"]


def python() -> list[str]:
    """The start of the command for a child that runs our code.

    It keeps the working directory out of the child's path (`-P`), like the console script. So `angarium demo`
    also runs in a project that has an `actors` package of its own.
    """
    return [sys.executable] if Path.cwd() == _HOME else [sys.executable, "-P"]


def _problem(name: str) -> str | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return f"the package {name} {_MISSING}"
    file = Path(spec.origin).resolve()
    if file.parent != _HOME / name:
        return f"the package {name} in {file.parent} is not Angarium's"
    if _OWN_WORD not in file.read_bytes().partition(b"\n")[0]:
        return f"another package is installed over {name} in {file.parent}"
    return None
