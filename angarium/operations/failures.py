"""Failures of operations: they are expected, and therefore values.

Within an operation, a step that cannot continue raises; `operation` turns that into a `NotDone`, so that a
caller sees in the type that the operation may fail, and how.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Literal, ParamSpec, TypeVar

from msgspec import Struct

from actors.errors import AngariumError, BadInput, InvalidPolicy, Unavailable, Unusable
from streams.nats.errors import ApiError, NotPermitted
from streams.resending.plan_lock import LockHeld

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal[
    "invalid", "not_found", "conflict", "refused", "too_large", "full", "not_allowed", "unanswered",
    "unavailable", "unusable",
]  # fmt: skip
"""Kinds of failure that a caller may have to distinguish:

- `invalid`: the request contradicts itself or the stored data; a different request can succeed.
- `not_found`: the object of the request does not exist.
- `conflict`: another user changed the same thing at the same moment; nothing was done.
- `refused`: the owner of the receiver, or NATS, or the current state does not allow it.
- `too_large`: it is larger than the limit.
- `full`: there is no room for it now; ask again later.
- `not_allowed`: NATS does not permit it to this user.
- `unanswered`: no answer said whether it was done, or no node could do it.
- `unavailable`: NATS did not answer; nothing is known.
- `unusable`: stored data cannot be used, for example because a newer version wrote it.
"""


class NotDone(Struct, frozen=True, kw_only=True):
    """The reason why an operation was not done; `text` is one sentence for people.

    `code` is one token of the party that refused, `problems` one sentence for each bad member. `remedy` names
    commands and flags: only the command line says it, after the text, whose sentence it continues.
    """

    kind: Kind
    text: str
    code: str = ""
    problems: tuple[str, ...] = ()
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The whole sentence, for the command line."""
        return self.text + self.remedy


class OperationError(AngariumError):
    """A step of an operation that cannot continue."""

    def __init__(
        self, kind: Kind, text: str, code: str = "", problems: tuple[str, ...] = (), *, remedy: str = ""
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code
        self.problems = problems
        self.remedy = remedy


def operation(
    work: Callable[P, Awaitable[T]],
) -> Callable[P, Awaitable[T | NotDone]]:
    """Make an operation of a coroutine function: errors that it raises on purpose become its result."""

    @wraps(work)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T | NotDone:
        try:
            return await work(*args, **kwargs)
        except AngariumError as error:
            return not_done(error)

    return run


def not_done(error: AngariumError) -> NotDone:
    """The failure that an error means to the caller of an operation."""
    text = str(error)
    match error:
        case OperationError(kind=kind, code=code, problems=problems, remedy=remedy):
            return NotDone(kind=kind, text=text, code=code, problems=problems, remedy=remedy)
        case InvalidPolicy(problems=problems):
            return NotDone(kind="invalid", text=text, problems=tuple(problems))
        case BadInput():
            return NotDone(kind="invalid", text=text, problems=(text,))
        case LockHeld(work=work, remedy=remedy):
            return NotDone(kind="conflict", text=text, code=f"{work}-unfinished", remedy=remedy)
        case NotPermitted():
            return NotDone(kind="not_allowed", text=text)
        case ApiError(code=code):
            return NotDone(kind="unavailable", text=text, code=str(code))
        case Unavailable():
            return NotDone(kind="unavailable", text=text)
        case Unusable():
            return NotDone(kind="unusable", text=text)
        case _:
            return NotDone(kind="refused", text=text)
