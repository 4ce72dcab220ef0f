"""Errors of operations and of the API name commands and flags only in their `remedy`, as their code shows."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from angarium.api.problems import problem_of
from angarium.operations import failures
from angarium.operations.failures import Kind, NotDone, OperationError
from tests.support.command_line import COMMAND_LINE

HERE = Path(failures.__file__).parent
FILES = sorted([*HERE.rglob("*.py"), *(HERE.parent / "api").rglob("*.py")])
MADE_FOR_CLIENTS = frozenset({
    "OperationError", "NotDone", "BadInput", "InvalidPolicy", "ProblemRaised", "Fault", "UrlObjection",
    "invalid", "unavailable", "unmet", "Finding", "problem", "warning",
})  # fmt: skip
"""The calls that make a text which a client of the API may read."""
FOR_THE_COMMAND_LINE = ("remedy", "with_flags", "command")
"""Their arguments that it does not read."""
FINDINGS = ("problem", "warning")
"""Functions whose remedy the test reads, but not their fourth argument, the command."""


def texts_for_clients(source: str) -> Iterator[str]:
    """The texts for clients in a module."""
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in MADE_FOR_CLIENTS:
            keywords = [each.value for each in call.keywords if each.arg not in FOR_THE_COMMAND_LINE]
            read = call.args[:3] if ast.unparse(call.func) in FINDINGS else call.args
            for part in (*read, *keywords):
                yield from (
                    str(each.value)
                    for each in ast.walk(part)
                    if isinstance(each, ast.Constant) and each.value
                )


def test_no_text_for_clients_names_a_command_or_a_flag() -> None:
    texts = [text for file in FILES for text in texts_for_clients(file.read_text())]
    assert len(texts) > 100
    assert [text for text in texts if COMMAND_LINE.search(text)] == []


def test_no_text_of_an_attempt_names_a_command_or_a_flag() -> None:
    """An attempt's error is recorded, and shown over HTTP."""
    texts = [text for file in sorted((HERE.parent / "delivery").rglob("*.py")) for text in constants(file)]
    assert len(texts) > 100
    assert [text for text in texts if COMMAND_LINE.search(text)] == []


def constants(file: Path) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    tree = ast.parse(file.read_text())
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone:
            yield each.value


@pytest.mark.parametrize("text", ["see angarium doctor", "there is none; say --since", "(--allow-http)"])
def test_a_command_in_a_text_is_found(text: str) -> None:
    (found,) = texts_for_clients(f"raise OperationError('', {text!r}, remedy='; run angarium setup')")
    assert COMMAND_LINE.search(found)
    *_, found = texts_for_clients(f"problem('it', 'is ill', {text!r}, 'angarium setup')")
    assert COMMAND_LINE.search(found)


@pytest.mark.parametrize("kind", get_args(Kind))
def test_the_command_line_alone_says_the_remedy(kind: Kind) -> None:
    error = OperationError(kind, "it is not there", remedy="; see angarium doctor")
    failure = failures.not_done(error)
    assert isinstance(failure, NotDone)
    assert failure.sentence == "it is not there; see angarium doctor"
    assert problem_of(failure).problem.detail == "it is not there"
