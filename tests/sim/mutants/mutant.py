"""A mutant: a rule of the design, taken out of the product while runs are made."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec import Struct


class Mutant(Struct, frozen=True):
    """`rule` is what is taken out, as the design says it; `scenario` finds it where seeds would take long.

    `run`: makes the run of a seed, if it is not the usual one.
    """

    name: str
    rule: str
    replacements: tuple[tuple[Any, str, Any], ...]
    scenario: Callable[[], None] | None = None
    run: Callable[[int], None] | None = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, value in self.replacements:
                stack.enter_context(patch.object(owner, name, value))
            yield
