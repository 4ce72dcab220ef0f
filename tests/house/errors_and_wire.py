"""Rules about errors, loose ends, names on the wire, and annotations."""

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator

from tests.house.module import OURS, Module, imports

BUILT_IN_ERRORS = frozenset(
    name
    for name, each in vars(builtins).items()
    if isinstance(each, type) and issubclass(each, BaseException)
)
HEADER_NAME = re.compile(r"(Nats|Angarium|KV)-[A-Z][A-Za-z-]*\Z")
ERROR_CODES = range(10_001, 10_300)
CUTS = frozenset({"split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"})
SUBJECTS_ARE_CUT_IN = frozenset({
    "streams.installation.topology", "streams.installation.actor_keys",
    "streams.installation.timed_subjects", "streams.nats.replies",
})  # fmt: skip
"""The makers of subjects; `streams.nats.replies` has subjects of its own, its inboxes."""
FIRST_WORDS_ARE_CUT_IN = frozenset({
    "actors.ids", "angarium.cli.invocation.names", "angarium.settings", "streams.installation.topology",
    "streams.routing.lanes", "streams.routing.router",
})  # fmt: skip
"""`tenant_of` itself; the words of settings, subjects and mistyped names; the routing of each event, where
one call more is too many."""
LOOSE_ENDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


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
    """Everything that leaves its file is an AngariumError, so that callers need no list of errors."""
    if module.path[0] not in OURS:
        return
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name, bases=[ast.Name(id=base)]) if base in BUILT_IN_ERRORS:
                if name != "AngariumError" and not name.startswith("_"):
                    yield f"{name} is no AngariumError"


def wire_names_stand_once(module: Module) -> Iterator[str]:
    """Names of headers, and error codes of JetStream, in `streams.nats.wire_names`."""
    if module.path[0] not in OURS or module.name == "streams.nats.wire_names":
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


def subjects_are_cut_where_they_are_made(module: Module) -> Iterator[str]:
    """Only `Names` and `ActorKeys` know where a shard, a tenant or a receiver stands in a subject."""
    if module.path[0] not in OURS or module.name in SUBJECTS_ARE_CUT_IN:
        return
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=cut, attr=method)) if method in CUTS and is_subject(cut):
                yield f"line {node.lineno} cuts a subject by {method}"
            case ast.Subscript(value=cut, slice=ast.Slice(lower=ast.expr())) if is_subject(cut):
                yield f"line {node.lineno} cuts a subject by its length"


def tenants_are_cut_in_one_place(module: Module) -> Iterator[str]:
    """The tenant of a receiver, or of an event's address, comes from `actors.ids.tenant_of`."""
    if module.path[0] not in OURS or module.name in FIRST_WORDS_ARE_CUT_IN:
        return
    for node in module.nodes:
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(attr="partition" | "split"), args=[ast.Constant(".")]),
                slice=ast.Constant(0),
            ):
                yield f"line {node.lineno} cuts off the word before the first dot"
            case _:
                pass


def is_subject(cut: ast.expr) -> bool:
    match cut:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "subject"
        case _:
            return False
