"""Rules about sizes and names: files, functions, lines, numbers, classes and mutants."""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.house.module import OURS, Module, modules

FILE_MAX = 500
FUNCTION_MAX = 70
LINE_MAX = 110
FILES_MAX = 12
"""In a folder, `__init__.py` aside."""
ENTRIES_MAX = 16
"""Files and folders in a folder of the product, `__init__.py` aside."""
WIDE_FOLDERS = frozenset({"streams", "angarium"})
"""Packages whose folders are subjects of their own; `docs/tour.md` says what each is for."""
ONE_MEANING: dict[str, tuple[tuple[str, ...], ...]] = {
    "cursor": (("actors",), ("angarium", "api"), ("angarium", "console"), ("angarium", "terminal")),
    "mark": (("streams",), ("angarium", "ledger"), ("angarium", "node"), ("angarium", "cli"),
             ("angarium", "operations", "live", "journal_pages")),
}  # fmt: skip
"""Words for one thing each, and its home: how far an actor has read (for the API and the console, a page of a
list; for the terminal, the place of the next letter), and the last known message of a stream."""
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
SHAPELESS_NAMES = re.compile(r"_*(utils?|helpers?|common|managers?|misc)\Z")
PREPOSITIONS = frozenset({"of", "on", "to"})
BARE_RELATION = re.compile(r"_(to|on|of(_\w+)?)\Z")
"""Names of attributes that say what something belongs to, but not what it is."""
PRIVATE = re.compile(r"_(?!_)")
WITHOUT_PRIVATE_NAMES = ("tests.contract.", "tests.edge.api.")
QUESTION = re.compile(r"_*((all|asks|cannot|has|is|lacks|may|needs|wants)_|(delivers|measures)\Z)")
"""Beginnings of the name of a property that is true or false."""
SPEAKING = re.compile(r"_|[A-Z]+_(?!M?S\Z)|(VERSION|KIB|GIB|DAY_S)\Z")


def files_are_short(module: Module) -> Iterator[str]:
    lines = module.source.count("\n")
    if lines > FILE_MAX:
        yield f"has {lines} lines: {FILE_MAX} at most"


def functions_are_short(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_MAX:
                yield f"{node.name} has {lines} lines: {FUNCTION_MAX} at most"


def lines_are_short(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.source.splitlines(), start=1):
        if len(line) > LINE_MAX:
            yield f"line {number} has {len(line)} columns: {LINE_MAX} at most"


def names_say_something(module: Module) -> Iterator[str]:
    for name in module.path:
        if SHAPELESS_NAMES.match(name):
            yield f"{name} is no subject"
        if name in sys.stdlib_module_names - {"__main__", "mailbox"}:
            yield f"{name} is a module of the standard library"
    for node in module.nodes if module.path[0] in OURS else ():
        match node:
            case ast.arg(arg=name) if name in PREPOSITIONS:
                yield f"line {node.lineno}: the parameter {name} does not say what it is"
            case ast.Attribute(attr=name) if BARE_RELATION.match(name):
                yield f"line {node.lineno}: the attribute {name} does not say what it is"


def words_have_one_meaning(module: Module) -> Iterator[str]:
    """A word of `ONE_MEANING` is in no name that is defined elsewhere."""
    if module.path[0] in OURS:
        for name in sorted(set(_defined_names(module))):
            words = {word.lower().removesuffix("s") for word in WORD.findall(name)}
            for word in words & ONE_MEANING.keys():
                if not any(module.path[: len(home)] == home for home in ONE_MEANING[word]):
                    yield f"defines {name}, but {word} is something else"


def _defined_names(module: Module) -> Iterator[str]:
    for node in module.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def numbers_say_what_they_bound(module: Module) -> Iterator[str]:
    """A constant says what it bounds, read away from its line: two words at least, besides a unit of time."""
    for node in module.tree.body if module.path[0] in OURS else ():
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(value) | ast.BinOp(ast.Constant(value))
            ):
                if name.isupper() and isinstance(value, int | float) and not SPEAKING.match(name):
                    yield f"line {node.lineno} has {name}"


def truths_are_named_as_questions(module: Module) -> Iterator[str]:
    """The name of a property that is true or false says so: `is_stalled`, not `stalled`."""
    for node in module.nodes if module.path[0] in OURS else ():
        match node:
            case ast.FunctionDef(
                name=name, returns=ast.Name(id="bool"), decorator_list=[ast.Name(id="property")]
            ):
                if not QUESTION.match(name):
                    yield f"line {node.lineno} has the property {name}"
            case _:
                pass


def classes_have_names_of_their_own(module: Module) -> Iterator[str]:
    """One name, one thing; only a port of `actors.ports` and what fills it are called the same."""
    for name in classes(module) if module.name != "actors.ports" else ():
        if others := homes_of_classes()[name] - {module.name, "actors.ports"}:
            yield f"{name} is also in {', '.join(sorted(others))}"


def classes(module: Module) -> Iterator[str]:
    if module.path[0] in OURS and module.path[:2] != ("angarium", "api"):  # Schemas have names for its users.
        found = (node.name for node in module.tree.body if isinstance(node, ast.ClassDef))
        yield from (name for name in found if not name.startswith("_"))


@cache
def homes_of_classes() -> defaultdict[str, set[str]]:
    homes = defaultdict[str, set[str]](set)
    for module in modules():
        for name in classes(module):
            homes[name].add(module.name)
    return homes


def private_names_stay_private(module: Module) -> Iterator[str]:
    """Private names change with every line: mutants, contract tests and tests of the HTTP API use none.

    A rule that a mutant takes out has a name for all to see.
    """
    if module.name.startswith(WITHOUT_PRIVATE_NAMES) or (
        module.path[:2] == ("tests", "sim") and "mutants" in module.path
    ):
        for node in module.nodes:
            match node:
                case ast.Attribute(value=ast.Name(id=of), attr=name) if of not in ("self", "cls"):
                    names = [name]
                case ast.Attribute(value=ast.Attribute() | ast.Call() | ast.Subscript(), attr=name):
                    names = [name]
                case ast.Call(
                    func=ast.Name(id="getattr" | "setattr") | ast.Attribute(attr="setattr" | "delattr"),
                    args=[_, ast.Constant(value=str(name)), *_],
                ):
                    names = [name]
                case ast.Call(func=ast.Attribute(attr="setattr"), args=[ast.Constant(value=str(path)), *_]):
                    names = path.split(".")
                case ast.Tuple(elts=[_, ast.Constant(value=str(name)), _]):
                    names = [name]
                case ast.ImportFrom(names=aliases):
                    names = [alias.name for alias in aliases]
                case _:
                    names = []
            for name in names:
                if PRIVATE.match(name):
                    yield f"uses {name}"
