"""Rules about docstrings and words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from tests.house.module import OURS, Module, modules

ROUNDABOUT = re.compile(r"(As|How|Of|So|That|Up to|What|Whatever|Where|Whether|Who|Whoever|Whom)\b")
PRONOUN = re.compile(
    r"(He|It|Its|Nobody|Nothing|Somebody|Tells whether|The same|They|Those|\w+ ((for|to) )?(it|its|them))\b"
)  # Beginnings that say nothing, or whose object has no name: `Ask for it`.
REASON_WITHOUT_SUBJECT = re.compile(
    r"(Also|And|As|But|Else|However|Its?|Nor|Not|Of|Or|So|Such as|That|They|Those|"
    r"What|Whatever|Whether|Who|Whoever)\b"
)  # Beginnings that continue the title of a test, or ask for a subject.
VAGUE_TITLE = re.compile(
    r"test_((what|who|whom|whose|where|how)(so|ever)?|behind|"
    r"it|its|neither|nor|not|of|so|that|they|those|one_(that|who))_|"
    r"test_\w*?_?(whatever|however|everybody|of_late|just_now|goes_on|word_of|where_nothing|"
    r"tells?_of|is_told_(those|to)|holds?_up_no|no_wonder|ailment|those_(that|who)|is_none|all_the_same|"
    r"says_it_too|with_whom|now_and_then|is_had|there_is_to_know|"
    r"worked_off|a_look|(few|earlier)_looks|that_is_none|that_none_can|that_there_(is|are)|is_no_news|"
    r"gives?_way(?!_to_the_next)|gave_way|tells?|(is|are)_told_of|told_as|heard_of)(_|\Z)"
)
"""Titles that begin with nothing, or have a word in them for which there is a plainer one."""
TITLE_MAX = 80
"""Characters of the title of a test: a longer one has two claims, or relative clauses in each other."""
VAGUE_CLASS = re.compile(r"Test(?:The|A|An|Another|No|Who|What|Being|Letting|Trouble|\w+That)(?=[A-Z]|\Z)")
"""Classes of tests that begin with an article or a question, or name no thing of the product."""
ARCHAIC = re.compile(
    r"\b(anew|amid|anybody|bears|bore|borne|(?:can|could) bear|befell|beside|by turns|for ever|heirs?|hence|"
    r"lest|nobody|somebody|"
    r"over (?:(?:any|every|a|all) )?(?:crash(?:es)?|kills?|takeovers?|restarts?|outages?|loss(?:es)?|faults)|"
    r"speaks? of|thereby|whichever|who(?:s?)ever|(?:none|false|empty|raises \S+) where|but for|"
    r"for who (?!in\b)|on record|take note|with most(?! of)|"
    r"(?:a|the|our|its|last|each|next|earlier|first|second|one|this|another|no) look(?!-)|"
    r"(?:earlier|later|few|two) looks)\b",
    re.IGNORECASE,
)
NAMED = re.compile(r"`([A-Za-z_][\w.]*)`")
BULLET = re.compile(r"^ *- ((?:`[a-z_][a-z\d_]*`(?:, | and )?)+):", re.MULTILINE)
NAMED_IN_LOWER_CASE = re.compile(r"(?<!`)`([a-z_][a-z\d_]*)`(?!`)")
FOREIGN_NAMES = frozenset({
    "angarium_loop_lag_seconds", "ip_local_port_range", "on_", "prometheus_client", "publish_async",
})  # fmt: skip
"""Names in docstrings that are of other programs, or that the code puts together."""

_INTRODUCED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def modules_introduce_themselves(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "has no docstring"


def folders_say_what_to_read_first(module: Module) -> Iterator[str]:
    if module.path[0] not in OURS or module.path[-1] != "__init__":
        return
    if not re.search(r"\bRead\b", ast.get_docstring(module.tree) or ""):
        yield "does not say which of its files to read first"


def introductions_name_what_exists(module: Module) -> Iterator[str]:
    """Names in the docstring of a folder are files, folders, or what a file defines."""
    if module.path[-1] == "__init__":
        for name in NAMED.findall(ast.get_docstring(module.tree) or ""):
            if name.removesuffix(".py").split(".")[-1] not in existing_names():
                yield f"names `{name}`, which does not exist"


def folders_name_their_folders(module: Module) -> Iterator[str]:
    """A folder says what each folder in it is for, so that a newcomer chooses by subject."""
    path = module.path[:-1]
    if module.path[0] not in OURS or module.path[-1] != "__init__":
        return
    text = ast.get_docstring(module.tree) or ""
    named = {part for name in re.findall(r"`([\w./]+)`", text) for part in re.split(r"[./]", name)}
    for folder in sorted(_folders_in(path) - named):
        yield f"does not say what its folder `{folder}` is for"


def _folders_in(path: tuple[str, ...]) -> set[str]:
    return {each.path[-2] for each in modules() if each.path[-1] == "__init__" and each.path[:-2] == path}


@cache
def existing_names() -> frozenset[str]:
    """The names of all files and folders, and of what they define."""
    paths = {part for module in modules() for part in module.path}
    return frozenset(paths | {name for module in modules() for name in _defined(module)})


def _defined(module: Module) -> Iterator[str]:
    for statement in module.tree.body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                yield name
            case _:
                pass


def docstrings_name_what_exists(module: Module) -> Iterator[str]:
    """A name in a docstring of the product is in its code: after a renaming it is the new one."""
    if module.path[0] in OURS:
        for node in module.nodes:
            if isinstance(node, _INTRODUCED):
                for name in NAMED_IN_LOWER_CASE.findall(ast.get_docstring(node) or ""):
                    if not any(name in known for known in (written_names(), existing_names(), FOREIGN_NAMES)):
                        yield f"has a docstring that names `{name}`, which does not exist"


def bullets_name_members(module: Module) -> Iterator[str]:
    """A list in the docstring of a class is about its members: the same name elsewhere is no excuse."""
    classes = {node.name: node for node in module.nodes if isinstance(node, ast.ClassDef)}
    if module.path[0] in OURS:
        for owner in classes.values():
            listed = " ".join(BULLET.findall(ast.get_docstring(owner) or ""))
            known = set(_members(owner, classes)) if listed else set()
            for name in NAMED_IN_LOWER_CASE.findall(listed):
                if name not in known:
                    yield f"lists `{name}` in the docstring of {owner.name}, which has no such member"


def _members(owner: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[str]:
    """The members of a class and of its bases in the same file, with the parameters of its constructor."""
    for node in owner.body:
        match node:
            case ast.AnnAssign(target=ast.Name(name)) | ast.Assign(targets=[ast.Name(name)]):
                yield name
            case ast.FunctionDef(name=name, args=taken) | ast.AsyncFunctionDef(name=name, args=taken):
                yield name
                if name == "__init__":
                    yield from (each.arg for each in (*taken.args, *taken.kwonlyargs))
            case _:
                pass
    for inner in ast.walk(owner):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            yield inner.attr
    for base in owner.bases:
        generic = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(generic, ast.Name) and generic.id in classes:
            yield from _members(classes[generic.id], classes)


@cache
def written_names() -> frozenset[str]:
    """All identifiers of the product, and the words of its texts, which are names on the wire."""
    return frozenset(name for module in modules() if module.path[0] in OURS for name in _written(module))


def _written(module: Module) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.NAME:
            yield token.string
        elif token.type == tokenize.STRING and not token.string.startswith('"""'):
            yield from re.findall(r"\w+", token.string)


def first_lines_say_what_it_is(module: Module) -> Iterator[str]:
    """The first line of a docstring begins with a noun or a verb: what a thing is, or what it does.

    The title of a test says that; `reasons_name_their_subject` is about its docstring.
    """
    for first in first_lines(module):
        if ROUNDABOUT.match(first) or PRONOUN.match(first):
            yield f"begins a docstring with: {first}"


def first_lines(module: Module) -> Iterator[str]:
    """Yields the first line of each docstring, of constants, too; those of tests give reasons."""
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not (
            module.path[0] == "tests" and getattr(node, "name", "").startswith("test_")
        ):
            yield (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.Module | ast.ClassDef):
            for before, statement in pairwise(node.body):
                match statement:
                    case ast.Expr(ast.Constant(str(text))) if isinstance(before, ast.Assign | ast.AnnAssign):
                        yield text.partition("\n")[0]
                    case _:
                        pass


def reasons_name_their_subject(module: Module) -> Iterator[str]:
    """The docstring of a test is a sentence of its own: it does not continue the title."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if module.path[0] == "tests" and REASON_WITHOUT_SUBJECT.match(first):
                yield f"line {node.lineno} gives a reason without a subject: {first}"


def first_lines_are_whole(module: Module) -> Iterator[str]:
    """The first line of a docstring is a whole sentence: those of modules can be listed as an index.

    Of tests, only modules are held to it.
    """
    introduced = ast.Module if module.path[0] not in OURS else _INTRODUCED
    for node in module.nodes:
        if isinstance(node, introduced):
            first = (ast.get_docstring(node) or ".").partition("\n")[0]
            if not first.endswith((".", ":", "?")):
                yield f"breaks off its first line: {first}"


def diagrams_keep_their_lines(module: Module) -> Iterator[str]:
    """An indented line of a docstring shows one function: a formatter has not joined it with the next one."""
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for line in (ast.get_docstring(node) or "").splitlines():
                if line.startswith("    ") and line.count("->") > 1:
                    yield f"joins the lines of a diagram: {line.strip()}"


def titles_name_their_subject(module: Module) -> Iterator[str]:
    """The title of a test is short, begins with its subject, and has plain words: `always`, not `whatever`.

    A scenario of the simulator is a test whose title has no prefix.
    """
    prefix = "test_" if module.path[:3] == ("tests", "sim", "scenarios") else ""
    for node in module.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                is_long = name.startswith("test_") and len(name) > TITLE_MAX
                vague = is_long or VAGUE_TITLE.match(prefix + name)
            case ast.ClassDef(name=name):
                vague = VAGUE_CLASS.match(name)
            case _:
                continue
        if vague:
            yield f"line {node.lineno} has {name}"


def words_are_usual(module: Module) -> Iterator[str]:
    """All texts and names of the product; of tests, whose data may be odd, docstrings, comments and names."""
    texts = [module.source] if module.path[0] in OURS else prose(module)
    lines = (on_one_line(text) for text in (*texts, *names(module)))
    yield from (f"says {word!r}" for line in lines for word in ARCHAIC.findall(line))


def on_one_line(text: str) -> str:
    """The text with its lines joined, so that words over the end of a line are found."""
    return re.sub(r"(?<=\w)\n\s*(# )?(?=\w)", " ", text)


def names(module: Module) -> Iterator[str]:
    """Yields the names that a module gives, with spaces between their words."""
    for node in module.nodes:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name.replace("_", " ")
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name.replace("_", " ")
            case ast.arg(arg=name):
                yield name.replace("_", " ")
            case _:
                pass


def prose(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value.value
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
