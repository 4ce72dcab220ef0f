"""Whether the packages `actors` and `streams` are ours.

These names are free for anybody, and somebody else's package of such a name, earlier on the path, would be
imported in our place and fail in ways that nobody could read. So it is asked before anything is imported.
"""

from importlib.util import find_spec
from pathlib import Path

FLOORS = ("actors", "streams")


def strangers() -> list[str]:
    """One sentence for each package that is missing or somebody else's."""
    ours = Path(__file__).resolve().parent.parent
    return [problem for name in FLOORS if (problem := _problem(name, ours)) is not None]


def _problem(name: str, ours: Path) -> str | None:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return f"the package {name} is missing; install angarium again"
    found = Path(spec.origin).resolve().parent
    if found == ours / name:
        return None
    return f"the package {name} in {found} is not Angarium's; install angarium into an environment of its own"
