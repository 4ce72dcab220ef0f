"""Rules about imports: packages, layers, and the pure core."""

import ast
from collections.abc import Iterator

from tests.house.layers import LAYERS
from tests.house.module import OURS, Module, imports

AWAITING = frozenset({
    "host", "actor", "wake_timer", "burials", "flow_control", "live_state", "pending", "posting_bounds",
    "operator_actions", "unknown_receivers", "discard", "backlog_reading", "residents", "alerts",
    "eventless",
})  # fmt: skip
"""The modules of `actors.runtime` that may await. All others are held to be pure."""
SEAMS = frozenset({"ports", "environment"})
"""The modules of `actors` that only declare what others await: Protocols, as pure as the rest."""
PURE_IMPORTS = frozenset({
    "abc", "base64", "binascii", "bisect", "collections", "datetime", "difflib", "email", "enum",
    "functools", "hashlib", "heapq", "itertools", "jmespath", "math", "msgspec", "operator", "re", "string",
    "struct", "typing", "urllib", "warnings",
})  # fmt: skip
SHARED_BY_THE_API = frozenset({
    "admission", "api_state", "background", "problems", "queries", "recent_findings", "requests",
})  # fmt: skip
"""The parts of `angarium.api` that the console has, too, which do not depend on routes of the API."""
AWAITING_IMPORTS = PURE_IMPORTS | {"asyncio", "contextlib", "logging"}
CLOCKS_AND_IO = frozenset({"open", "print", "input", "now", "utcnow", "today", "formatdate", "localtime"})


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
                allowed = path[0] == "streams" or (path[0] == "actors" and path[1:2] != ("runtime",))
            case ("angarium", "delivery", *_):
                allowed = path[0] == "actors" or path[:2] in {
                    ("angarium",), ("angarium", "__version__"), ("angarium", "delivery"),
                    ("angarium", "egress_settings"), ("angarium", "file_value"),
                }  # fmt: skip
            case _:
                allowed = path[0] in OURS
        if not allowed:
            yield f"imports {'.'.join(path)}, which lies above it or beside it"


def may_await(path: tuple[str, ...]) -> bool:
    return path[:2] == ("actors", "runtime") and not AWAITING.isdisjoint(path[2:])


def layers_hold(module: Module) -> Iterator[str]:
    """Within a folder, a part imports from the layers below it; so a part and what is in it are no knot."""
    for depth in range(1, len(module.path)):
        folder, part = module.path[:depth], module.path[depth]
        if part == "__init__" or (layers := LAYERS.get(".".join(folder))) is None:
            continue
        layer = layer_of(part, layers)
        if layer is None:
            yield f"{part} is in no layer of {'.'.join(folder)}; give it one in LAYERS"
            continue
        for path in imports(module):
            if path[:depth] == folder and len(path) > depth and path[depth] != part:
                other = layer_of(path[depth], layers)
                if other is not None and other >= layer:
                    yield f"imports {'.'.join(path)}, which does not lie below it"


def layer_of(part: str, layers: tuple[str, ...]) -> int | None:
    return next((number for number, parts in enumerate(layers) if part in parts.split()), None)


def files_of_tests_stand_alone(module: Module) -> Iterator[str]:
    """Tests share code by a third file, which has no tests."""
    for path in imports(module):
        if path[0] == "tests" and any(name.startswith("test_") for name in path[1:]):
            yield f"imports {'.'.join(path)}"


def only_streams_knows_nats(module: Module) -> Iterator[str]:
    if module.path[0] not in ("streams", "tests"):
        yield from (f"imports {'.'.join(path)}" for path in imports(module) if path[0] == "nats")


def operations_do_not_talk(module: Module) -> Iterator[str]:
    """Values in, values out, and errors below AngariumError: the caller need not be a terminal."""
    if module.path[:2] == ("angarium", "operations"):
        for path in imports(module):
            if path[0] == "click" or path[:2] == ("angarium", "terminal"):
                yield f"imports {'.'.join(path)}"


def the_console_shares_little(module: Module) -> Iterator[str]:
    """The console has operations, and of the API its state, its problems, its queries and its bounds."""
    if module.path[:2] == ("angarium", "console"):
        for path in imports(module):
            inside = path[:2] == ("angarium", "api") and len(path) > 2 and path[2] not in SHARED_BY_THE_API
            if inside or path[:2] == ("angarium", "cli"):
                yield f"imports {'.'.join(path)}"


def the_core_is_pure(module: Module) -> Iterator[str]:
    """No asyncio, clock, randomness or I/O where things are decided; time and ids come in with the call."""
    if module.path[0] != "actors":
        return
    awaiting = may_await(module.path)
    allowed = (AWAITING_IMPORTS if awaiting else PURE_IMPORTS) | {"actors"}
    for path in imports(module):
        if path[0] not in allowed:
            yield f"imports {path[0]}"
        if may_await(path) and not awaiting:
            yield f"imports {'.'.join(path[:3])}, which awaits"
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CLOCKS_AND_IO:
                if not awaiting or name != "now":  # Code that may await asks its Clock.
                    yield f"line {node.lineno} calls {name}()"
            case ast.AsyncFunctionDef(lineno=line) | ast.Await(lineno=line):
                if not awaiting and module.path[-1] not in SEAMS:
                    yield f"line {line} awaits"


def the_machine_holds_nothing(module: Module) -> Iterator[str]:
    """A class of the machine is a value: what changes itself is memory, and belongs to `actors.memory`."""
    if module.path[:2] != ("actors", "machine"):
        return
    for function in module.nodes:
        if isinstance(function, ast.FunctionDef) and function.name != "__init__":
            for node in ast.walk(function):
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store(), lineno=line):
                        yield f"line {line} changes an object of the machine"
                    case _:
                        pass
