"""The house rules, held by reading the code: who may import whom, what is pure, how large a room may grow.

Each rule is a function from one module to what is wrong with it. All rules are run over all modules, and each
rule over a made-up module that breaks it, since a rule that finds nothing looks just like one that cannot.
"""

import ast
import builtins
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path

import pytest

from tests.floors import FLOORS

ROOT = Path(__file__).parent.parent
PACKAGES = ("actors", "streams", "angarium", "tests")
OURS = frozenset(PACKAGES[:3])

FILE_MAX = 500
FUNCTION_MAX = 70
LINE_MAX = 110

FILES_MAX = 12
"""In a folder, `__init__.py` aside; the commands are one a file, however many there are."""
UNBOUNDED = frozenset({"angarium/cli"})

AWAITING = frozenset({
    "host", "actor", "ping", "alarm", "burials", "flow_control", "live_state", "pending", "skip",
    "unknown_receivers", "discard", "erase",
})  # fmt: skip
"""The modules of `actors.runtime` that await. Every other one is pure, unless it is listed here."""
SEAMS = frozenset({"ports", "shard_ports"})
"""The modules of `actors` that only say what somebody else awaits: Protocols, as pure as the rest."""
PURE_IMPORTS = frozenset({
    "abc", "base64", "binascii", "bisect", "collections", "datetime", "email", "enum", "functools", "hashlib",
    "heapq", "itertools", "math", "msgspec", "operator", "re", "string", "struct", "typing", "urllib",
})  # fmt: skip
ROOM_IMPORTS = PURE_IMPORTS | {"asyncio", "contextlib", "logging"}
CLOCKS_AND_IO = frozenset({"open", "print", "input", "now", "utcnow", "today", "formatdate", "localtime"})

SHAPELESS_NAMES = re.compile(r"_*(utils?|helpers?|common|managers?|misc)\Z")
ROUNDABOUT = re.compile(r"(As|How|Of|That|Up to|What|Where|Whether|Who|Whoever|Whom)\b")
BUILT_IN_ERRORS = frozenset(
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException)
)
HEADER_NAME = re.compile(r"(Nats|Angarium|KV)-[A-Z][A-Za-z-]*\Z")
ERROR_CODES = range(10_001, 10_300)
PRONOUN = re.compile(
    r"(He|It|Its|Nobody|Nothing|Somebody|Tells whether|The same|They|Those|\w+ ((for|to) )?(it|its|them))\b"
)  # Beginnings that say nothing, or whose object has no name: `Ask for it`.
ARCHAIC = re.compile(
    r"\b(anew|amid|anybody|bears|befell|beside|by turns|for ever|heirs?|hence|lest|nobody|somebody|"
    r"speaks? of|thereby|whichever|who(?:s?)ever|(?:none|false|empty|raises \S+) where)\b",
    re.IGNORECASE,
)
SPEAKING = re.compile(r"_|[A-Z]+_(?!M?S\Z)|(VERSION|KIB|GIB|DAY_S)\Z")
LOOSE_ENDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


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
def modules() -> list[Module]:
    return [
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8"))
        for package in PACKAGES
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


def arrows_point_down(module: Module) -> Iterator[str]:
    """actors <- streams <- angarium; delivery and streams do not know each other."""
    for path in imports(module):
        if path[0] not in (*OURS, "tests", "a relative import"):
            continue
        match module.path:
            case ("tests", *_):
                allowed = path[0] != "a relative import"
            case ("actors", *_):
                allowed = path[0] == "actors"
            case ("streams", *_):
                allowed = path[0] == "streams" or (path[0] == "actors" and not in_room(path))
            case ("angarium", "delivery", *_):
                allowed = path[0] == "actors" or path[:2] in {
                    ("angarium",), ("angarium", "__version__"), ("angarium", "delivery"),
                }  # fmt: skip
            case _:
                allowed = path[0] in OURS
        if not allowed:
            yield f"imports {'.'.join(path)}, which lies above it or beside it"


def in_room(path: tuple[str, ...]) -> bool:
    return path[:2] == ("actors", "runtime") and not AWAITING.isdisjoint(path[2:])


def floors_hold(module: Module) -> Iterator[str]:
    """Within a folder, a room imports from the floors below it; so a room and its sub-room are no knot."""
    for depth in range(1, len(module.path)):
        folder, room = module.path[:depth], module.path[depth]
        if room == "__init__" or (floors := FLOORS.get(".".join(folder))) is None:
            continue
        floor = floor_of(room, floors)
        if floor is None:
            yield f"{room} stands on no floor of {'.'.join(folder)}; give it one in FLOORS"
            continue
        for path in imports(module):
            if path[:depth] == folder and len(path) > depth and path[depth] != room:
                other = floor_of(path[depth], floors)
                if other is not None and other >= floor:
                    yield f"imports {'.'.join(path)}, which does not lie below it"


def floor_of(room: str, floors: tuple[str, ...]) -> int | None:
    return next((number for number, rooms in enumerate(floors) if room in rooms.split()), None)


def only_streams_knows_nats(module: Module) -> Iterator[str]:
    if module.path[0] not in ("streams", "tests"):
        yield from (f"imports {'.'.join(path)}" for path in imports(module) if path[0] == "nats")


def operations_do_not_talk(module: Module) -> Iterator[str]:
    """Values in, values out, and errors below AngariumError: whoever calls one may be no terminal."""
    if module.path[:2] == ("angarium", "operations"):
        for path in imports(module):
            if path[0] == "click" or path[:2] == ("angarium", "terminal"):
                yield f"imports {'.'.join(path)}"


def the_core_is_pure(module: Module) -> Iterator[str]:
    """No asyncio, clock, randomness or I/O where things are decided; time and ids come in with the call."""
    if module.path[0] != "actors":
        return
    room = in_room(module.path)
    allowed = (ROOM_IMPORTS if room else PURE_IMPORTS) | {"actors"}
    for path in imports(module):
        if path[0] not in allowed:
            yield f"imports {path[0]}"
        if in_room(path) and not room:
            yield f"imports {'.'.join(path[:3])}, which awaits"
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CLOCKS_AND_IO:
                if not room or name != "now":  # A room asks its Clock.
                    yield f"line {node.lineno} calls {name}()"
            case ast.AsyncFunctionDef(lineno=line) | ast.Await(lineno=line):
                if not room and module.path[-1] not in SEAMS:
                    yield f"line {line} awaits"


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


def modules_introduce_themselves(module: Module) -> Iterator[str]:
    if module.source and not ast.get_docstring(module.tree):
        yield "has no docstring"


def first_lines_say_what_it_is(module: Module) -> Iterator[str]:
    """The first line of a docstring begins with a noun or a verb: what a thing is, or what it does."""
    if module.path[0] not in OURS:
        return
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if ROUNDABOUT.match(first) or PRONOUN.match(first):
                yield f"begins a docstring with: {first}"


def words_are_usual(module: Module) -> Iterator[str]:
    if module.path[0] in OURS:
        yield from (f"says {word!r}" for word in ARCHAIC.findall(module.source))


def numbers_say_what_they_bound(module: Module) -> Iterator[str]:
    """A constant says what it bounds, read away from its line: two words at least, besides a unit of time."""
    for node in module.tree.body if module.path[0] in OURS else ():
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(value) | ast.BinOp(ast.Constant(value))
            ):
                if name.isupper() and isinstance(value, int | float) and not SPEAKING.match(name):
                    yield f"line {node.lineno} has {name}"


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


def nothing_is_swallowed(module: Module) -> Iterator[str]:
    """No `except Exception: pass`, in any of its spellings."""
    for node in module.nodes:
        match node:
            case ast.ExceptHandler(
                type=caught, body=[ast.Pass() | ast.Continue() | ast.Expr(ast.Constant())]
            ):
                if catches_all(caught):
                    yield f"line {node.lineno} swallows every exception"
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=suppressed):
                if any(catches_all(each) for each in suppressed):
                    yield f"line {node.lineno} suppresses every exception"


def catches_all(caught: ast.expr | None) -> bool:
    match caught:
        case None | ast.Name(id="Exception" | "BaseException"):
            return True
        case ast.Tuple(elts=each):
            return any(map(catches_all, each))
        case _:
            return False


def nothing_is_left_for_later(module: Module) -> Iterator[str]:
    if LOOSE_ENDS.search(module.source):
        for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
            if token.type == tokenize.COMMENT and LOOSE_ENDS.search(token.string):
                yield f"line {token.start[0]}: {token.string}"


def errors_have_one_root(module: Module) -> Iterator[str]:
    """Everything that leaves its file is an AngariumError, so that nobody has to list what may come."""
    if module.path[0] not in OURS:
        return
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name, bases=[ast.Name(id=base)]) if base in BUILT_IN_ERRORS:
                if name != "AngariumError" and not name.startswith("_"):
                    yield f"{name} is no AngariumError"


def wire_names_stand_once(module: Module) -> Iterator[str]:
    """Names of headers in `streams.nats.headers`, error codes of JetStream in `streams.nats.codes`."""
    if module.path[0] not in OURS or module.name in ("streams.nats.headers", "streams.nats.codes"):
        return
    for node in module.nodes:
        match node:
            case ast.Constant(value=str(text)) if HEADER_NAME.match(text):
                yield f"line {node.lineno} spells the header {text}"
            case ast.Constant(value=int(code)) if code in ERROR_CODES and module.path[0] == "streams":
                yield f"line {node.lineno} spells the error code {code}"


def annotations_are_real(module: Module) -> Iterator[str]:
    """msgspec resolves the fields of a Struct at run time."""
    if ("__future__", "annotations") in imports(module):
        yield "imports annotations from __future__"


RULES: tuple[Callable[[Module], Iterator[str]], ...] = (
    arrows_point_down,
    floors_hold,
    only_streams_knows_nats,
    operations_do_not_talk,
    the_core_is_pure,
    files_are_short,
    functions_are_short,
    lines_are_short,
    names_say_something,
    modules_introduce_themselves,
    first_lines_say_what_it_is,
    words_are_usual,
    numbers_say_what_they_bound,
    classes_have_names_of_their_own,
    nothing_is_swallowed,
    nothing_is_left_for_later,
    errors_have_one_root,
    wire_names_stand_once,
    annotations_are_real,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps(rule: Callable[[Module], Iterator[str]]) -> None:
    broken = [f"{module.name}: {what}" for module in modules() for what in rule(module)]
    assert not broken, "\n" + "\n".join(broken)


BREACHES = [
    (arrows_point_down, "actors.machine.state", "import streams"),
    (arrows_point_down, "actors.runtime.host", "from angarium import settings"),
    (arrows_point_down, "actors.machine.state", "from . import ids"),
    (arrows_point_down, "streams.reading.inbox", "from actors.runtime import host"),
    (arrows_point_down, "streams.reading.inbox", "from actors.runtime.actor import Actor"),
    (arrows_point_down, "streams.reading.inbox", "def f():\n    import angarium.node.app"),
    (arrows_point_down, "angarium.delivery.exchange.http1", "from streams.nats.wire import Wire"),
    (arrows_point_down, "angarium.delivery.exchange.http1", "from angarium import settings"),
    (arrows_point_down, "angarium.delivery.exchange.http1", "import angarium.node.app"),
    (arrows_point_down, "angarium.node.app", "from tests.sim import world"),
    (floors_hold, "actors.machine.state", "from actors.runtime.host import Host"),
    (floors_hold, "actors.machine.state", "from actors import status"),
    (floors_hold, "actors.machine.state", "from actors.machine.evolve import evolve"),
    (floors_hold, "actors.machine.decide", "from actors.machine.owed.view import View"),
    (floors_hold, "streams.nats.wire", "import streams.installation.topology"),
    (floors_hold, "streams.routing.router", "from streams.fleet.lease import Lease"),
    (floors_hold, "angarium.operations.publishing.publish", "from angarium.cli import options"),
    (floors_hold, "angarium.anything_new", ""),
    (floors_hold, "angarium.delivery.exchange.http1", "import angarium.delivery.connections.pool"),
    (floors_hold, "angarium.delivery.connections.pool", "from angarium.delivery import http1_transport"),
    (floors_hold, "angarium.delivery.anything_new", ""),
    (only_streams_knows_nats, "angarium.demo", "from nats.js import api"),
    (only_streams_knows_nats, "actors.runtime.host", "import nats"),
    (operations_do_not_talk, "angarium.operations.receivers.put", "import click"),
    (operations_do_not_talk, "angarium.operations.receivers.put", "from angarium.terminal import output"),
    (the_core_is_pure, "actors.machine.state", "import asyncio"),
    (the_core_is_pure, "actors.anything_new", "import time"),
    (the_core_is_pure, "actors.machine.state", "from logging import getLogger"),
    (the_core_is_pure, "actors.runtime.host", "import random"),
    (the_core_is_pure, "actors.machine.state", "from actors.runtime.actor import Actor"),
    (the_core_is_pure, "actors.machine.state", "from datetime import datetime\nx = datetime.now()"),
    (the_core_is_pure, "actors.machine.state", "x = open('state')"),
    (the_core_is_pure, "actors.machine.state", "async def f(): ..."),
    (files_are_short, "actors.machine.state", "x = 1\n" * 501),
    (functions_are_short, "actors.machine.state", "async def f():\n" + "    x = 1\n" * 70),
    (lines_are_short, "actors.machine.state", "x = '" + "y" * 105 + "'"),
    (names_say_something, "angarium.cli.utils", ""),
    (names_say_something, "streams.common.pull", ""),
    (names_say_something, "streams.queue", ""),
    (modules_introduce_themselves, "actors.machine.state", "x = 1"),
    (first_lines_say_what_it_is, "streams.purge", '"""What nobody needs any more."""'),
    (first_lines_say_what_it_is, "streams.purge", 'def f():\n    """Of all consumers."""'),
    (first_lines_say_what_it_is, "streams.purge", 'def f():\n    """Tells whether it is."""'),
    (first_lines_say_what_it_is, "streams.purge", 'def f():\n    """Ask for it once more."""'),
    (words_are_usual, "streams.purge", "# Whoever purges"),
    (words_are_usual, "streams.purge", '"""The end; None where there is none."""'),
    (words_are_usual, "streams.purge", '"""Purging what nobody needs."""'),
    (words_are_usual, "angarium.node.app", "x = 'two nodes beside another'"),
    (numbers_say_what_they_bound, "streams.purge", "PATIENCE_S = 5.0"),
    (classes_have_names_of_their_own, "angarium.node.node", "class Journal: ..."),
    (nothing_is_swallowed, "streams.reading.pull", "try:\n    f()\nexcept Exception:\n    pass"),
    (
        nothing_is_swallowed,
        "streams.reading.pull",
        "try:\n    f()\nexcept (OSError, BaseException):\n    ...",
    ),
    (
        nothing_is_swallowed,
        "streams.reading.pull",
        "for x in y:\n    try:\n        f()\n    except:\n        continue",
    ),
    (nothing_is_swallowed, "streams.reading.pull", "with contextlib.suppress(Exception):\n    f()"),
    (nothing_is_left_for_later, "streams.reading.pull", "x = 1  # TODO later"),
    (errors_have_one_root, "streams.nats.errors", "class Lost(Exception): ..."),
    (errors_have_one_root, "angarium.delivery.target", "class Invalid(ValueError): ..."),
    (wire_names_stand_once, "streams.producer", "headers = {'Nats-Msg-Id': 'a'}"),
    (wire_names_stand_once, "angarium.bench.deliver", "headers['Angarium-Type'] = 'a'"),
    (wire_names_stand_once, "streams.journal.fence", "lost = code == 10071"),
    (annotations_are_real, "actors.machine.state", "from __future__ import annotations"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BREACHES)
def test_a_breach_is_found(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) >= 1


def test_no_folder_has_too_many_files() -> None:
    folders = Counter(
        str(path.parent.relative_to(ROOT))
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    )
    assert {folder for folder, count in folders.items() if count > FILES_MAX} <= UNBOUNDED


def test_each_folder_with_rooms_has_floors() -> None:
    folders = {
        ".".join(path.parent.parent.relative_to(ROOT).parts)
        for package in OURS
        for path in (ROOT / package).rglob("__init__.py")
        if path.parent != ROOT / package
    }
    assert folders == set(FLOORS)


def test_every_rule_has_its_breach() -> None:
    assert {rule for rule, _, _ in BREACHES} == set(RULES)


ALLOWED = [
    (first_lines_say_what_it_is, "angarium.logs", '"""Items of a list."""'),
    (first_lines_say_what_it_is, "streams.purge", '"""Offers room."""\ndef f():\n    """Whatsoever."""'),
    (arrows_point_down, "streams.reading.inbox", "from actors.ports import Inbox\nfrom actors import ids"),
    (arrows_point_down, "angarium.delivery.sender", "from angarium import __version__"),
    (
        arrows_point_down,
        "angarium.node.app",
        "import streams.nats.wire\nfrom angarium.delivery import sender",
    ),
    (
        floors_hold,
        "streams.journal.claim",
        "from streams.nats import wire\nfrom streams.journal import fence",
    ),
    (
        floors_hold,
        "angarium.cli.node",
        "from angarium import __version__\nfrom streams.nats import wire",
    ),
    (the_core_is_pure, "actors.ports", "class Sender(Protocol):\n    async def send(self) -> None: ..."),
    (the_core_is_pure, "actors.runtime.actor", "import asyncio\nasync def f(clock):\n    return clock.now()"),
    (
        nothing_is_swallowed,
        "streams.reading.pull",
        "try:\n    f()\nexcept Exception:\n    log.exception('f')",
    ),
    (nothing_is_left_for_later, "streams.reading.pull", "x = 'TODO'"),
    (numbers_say_what_they_bound, "streams.purge", "READ_TIMEOUT_S = 5.0\nVERSION = 1\n_TICK_S = 1e-6"),
    (classes_have_names_of_their_own, "streams.reading.backlog", "class Backlog: ...\nclass _Owner: ..."),
    (wire_names_stand_once, "streams.producer", '"""Angarium-Type names the type."""'),
    (errors_have_one_root, "angarium.delivery.answer", "class _Stop(Exception): ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), ALLOWED)
def test_correct_code_breaks_no_rule(rule: Callable[[Module], Iterator[str]], name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []
