"""A module of the project as the rules see it: its dotted name, its text and its syntax tree."""

import ast
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("actors", "streams", "angarium", "tests")
KIT = ("kit",)
OURS = frozenset(PACKAGES[:3])


class Module:
    """A module by its dotted name, and its text; taken apart once for all rules."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.path = tuple(name.split("."))

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


@cache
def modules(packages: tuple[str, ...] = PACKAGES) -> list[Module]:
    return [
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8"))
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def imports(module: Module) -> Iterator[tuple[str, ...]]:
    """All that is imported, wherever it stands; `from a import b` counts as a and as a.b."""
    for node in module.nodes:
        match node:
            case ast.Import(names=names):
                yield from (tuple(alias.name.split(".")) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=0):
                path = tuple((source or "").split("."))
                yield path
                yield from ((*path, alias.name) for alias in names)
            case ast.ImportFrom():
                yield ("a relative import",)
