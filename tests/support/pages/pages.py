"""The pages of the documentation, parsed: commands, links and names.

A `console` block is typed in: a line that begins with `$ ` is a command, the lines below it are what it
prints, where `…` stands for anything, and alone in a line for any number of lines. A block of `python`, `js`
or `go` is a file, which its first line names. Other blocks (`sh`, `yaml` …) are to be read.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

from tests.sim.mutants.catalogue import BY_NAME
from tests.support.processes.commands import ROOT

WIDTH = 120
"""Columns of a page's prose."""

_PROGRAMS = ("python", "js", "go")
_NAMED = re.compile(r"(?:#|//) (\S+)\n")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\s]+)`")
_MUTANTS = re.compile(r"\bmutants?\s((?:`[\w-]+`(?:,\s)?)+)")
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_PROOF = re.compile(rf"`tests/|{_MUTANTS.pattern}")
_IDS = re.compile(r'(?:--id |Angarium-Id: ?|"id": ?")([\w:-]+)')
_TYPES = re.compile(r'(?:--type |/events/|"type": ?")([\w.-]+)')
_PLACE = re.compile(r"(actors|streams|angarium|tests|deploy|docs)/")
_LINE = re.compile(r"[a-z_]+\.[a-z_]+")
_MEMBER = re.compile(r"_?[A-Z][A-Za-z0-9]+\.(?!md\b)_?[a-z][a-z_]*")


class Typed(Struct, frozen=True):
    """A command, and the lines that it prints; none: whatever it likes."""

    command: str
    shown: list[str]


class Page:
    """One page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text = path.read_text()
        self._blocks: list[tuple[str, str]] = _BLOCK.findall(self._text)
        self._prose = _BLOCK.sub("", self._text)

    def __repr__(self) -> str:
        return str(self.path).removeprefix(f"{ROOT}/")

    @property
    def typed(self) -> list[Typed]:
        """The commands to type in, in order."""
        found: list[Typed] = []
        for line in "".join(self._of("console")).splitlines():
            if line.startswith("$ "):
                found.append(Typed(line.removeprefix("$ "), []))
            else:
                found[-1].shown.append(line)
        return found

    @property
    def programs(self) -> dict[str, str]:
        """The sources of its programs, by the name of the file that they go into."""
        named = ((_NAMED.match(source), source) for source in self._of(*_PROGRAMS))
        return {name[1] if name else "": source for name, source in named}

    @property
    def published_types(self) -> dict[str, set[str]]:
        """The types of the events that it publishes, by their ids: in commands, in requests, and in JSON."""
        found: dict[str, set[str]] = {}
        for _, source in self._blocks:
            for line in source.splitlines():
                for id_, kind in zip(_IDS.findall(line), _TYPES.findall(line), strict=False):
                    found.setdefault(id_, set()).add(kind)
        return found

    @property
    def scripts(self) -> list[str]:
        """The scripts that it shows for the shell and leaves to the reader to run."""
        return self._of("sh")

    def scripts_under(self, heading: str) -> list[str]:
        """The scripts that it shows in one section, in order."""
        _, _, below = self._text.partition(f"\n## {heading}\n")
        section, _, _ = below.partition("\n## ")
        return [source for language, source in _BLOCK.findall(section) if language == "sh"]

    @property
    def anchors(self) -> set[str]:
        """The anchors that GitHub makes of its headings."""
        headings = (heading.lower() for _, heading in _HEADING.findall(self._prose))
        return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}

    @property
    def sections(self) -> list[str]:
        """The headings that part it, in order."""
        return [heading for level, heading in _HEADING.findall(self._prose) if level == "##"]

    @property
    def prose(self) -> str:
        """The text without programs, commands and quoted names."""
        return _CODE.sub("", self._prose)

    def broken_links(self) -> Iterator[str]:
        """Links within the repository that lead nowhere."""
        for target in _LINK.findall(self._prose):
            name, _, anchor = target.partition("#")
            path = self.path.parent / name if name else self.path
            if "://" not in target and not (path.exists() and (not anchor or anchor in Page(path).anchors)):
                yield target

    def wide(self) -> Iterator[str]:
        """Lists the lines of prose that are too wide and could be broken; a row of a table cannot."""
        for line in self._prose.splitlines():
            words = line.strip().removeprefix("- ")
            if len(line) > WIDTH and " " in words and not line.startswith("|"):
                yield line

    def explained(self, heading: str) -> list[str]:
        """The code in the first column of the tables under a heading."""
        _, _, below = self._prose.partition(f"\n## {heading}\n")
        section, _, _ = below.partition("\n## ")
        return [name for row in _ROW.findall(section) for name in _CODE.findall(row.partition(" | ")[0])]

    def unproven(self) -> Iterator[str]:
        """Rows of its tables of what `rests on` what, which name no test and no mutant in their last cell."""
        for table in _TABLE.findall(self._prose):
            heading, _, *rows = table.splitlines()
            if heading.startswith("| rests on |"):
                yield from (row for row in rows if not _PROOF.search(row.rpartition(" | ")[2]))

    def missing(self) -> Iterator[str]:
        """Lists names of things that do not exist: files, `file::name`, `Class.member`, mutants."""
        for names in _MUTANTS.findall(self._prose):
            yield from (name for name in _SPAN.findall(names) if name not in BY_NAME)
        for span in _SPAN.findall(self._prose):
            name, *inside = span.split("::")
            if _PLACE.match(name):
                if not (ROOT / name).exists() or not set(inside) <= _defined(ROOT / name):
                    yield span
            elif _MEMBER.fullmatch(span) and span not in _members():
                yield span

    def _of(self, *languages: str) -> list[str]:
        return [source for each, source in self._blocks if each in languages]


def all_pages() -> list[Page]:
    top = (ROOT / name for name in ("README.md", "CHANGELOG.md", "deploy/README.md"))
    return [Page(path) for path in (*top, *sorted((ROOT / "docs").rglob("*.md")))]


def logged(*levels: str) -> set[str]:
    """The lines of the log that have a name (`shard.refused`) and that the product writes at these levels."""
    found = set[str]()
    for node in _product():
        match node:
            case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str(name)), *_]):
                if level in levels and _LINE.fullmatch(name):
                    found.add(name)
            case ast.Call(func=ast.Name(id="on_defect"), args=[ast.Constant(value=str(part)), *_]):
                found.add(f"{part}.broken")
            case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Attribute(ast.Name("logging"), level)]):
                if level.lower() in levels:
                    found.add(name)
            case (
                ast.Call(func=ast.Name(id="RateLimitedLog"), args=[_, ast.Constant(value=str(name))])
                | ast.Call(
                    func=ast.Name(id="ReasonLog" | "GatheredReasonLog"),
                    args=[_, _, ast.Constant(value=str(name))],
                )
            ):
                if "warning" in levels:
                    found.add(name)
            case ast.Call(func=ast.Attribute(attr="log"), args=[_, ast.Constant(value=str(name)), *_]):
                if "info" in levels and _LINE.fullmatch(name):
                    found.add(name)
    return found


@cache
def _product() -> list[ast.AST]:
    files = (file for package in ("actors", "streams", "angarium") for file in (ROOT / package).rglob("*.py"))
    return [node for file in files for node in ast.walk(ast.parse(file.read_text()))]


@cache
def _defined(file: Path) -> frozenset[str]:
    """All functions and classes of a file, wherever in it."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    nodes = ast.walk(ast.parse(file.read_text())) if file.suffix == ".py" else ()
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


@cache
def _members() -> frozenset[str]:
    """`Class.member` of all that the product defines."""
    return frozenset(
        f"{node.name}.{member}"
        for node in _product()
        if isinstance(node, ast.ClassDef)
        for member in _members_of(node)
    )


def _members_of(node: ast.ClassDef) -> Iterator[str]:
    for child in ast.walk(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name
