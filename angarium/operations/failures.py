"""Failures of operations: expected, and therefore values.

Within an operation a step that cannot go on raises; `operation` hands that on as a `Failure`, so that a
caller sees in the type that it may fail, and how.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Literal, ParamSpec, TypeVar

from msgspec import Struct

from actors.errors import AngariumError, BadInput, InvalidPolicy, Unavailable, Unusable
from streams.dead_letters.redrive_lock import Busy
from streams.nats.errors import ApiError, NotPermitted

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal[
    "invalid", "not_found", "conflict", "refused", "not_allowed", "unanswered", "unavailable", "unusable"
]
"""Kinds of failure, as a caller may have to tell them apart:

- `invalid`: what was asked contradicts itself or what is stored; asked in another way, it can be done.
- `not_found`: what it is about is not there.
- `conflict`: somebody else changed at the same moment what was to be changed; nothing was done.
- `refused`: the owner of the receiver, NATS, or what there is says no.
- `not_allowed`: NATS does not permit our user to do that.
- `unanswered`: nobody said whether it was done, or nobody is there to do it.
- `unavailable`: NATS did not answer; nothing is known.
- `unusable`: what is stored cannot be used, such as what a newer version wrote.
"""


class Failure(Struct, frozen=True, kw_only=True):
    """The reason why an operation was not done; `text` is one sentence for people.

    `code` is one token of whoever refused, `problems` one sentence for each bad member.
    """

    kind: Kind
    text: str
    code: str = ""
    problems: tuple[str, ...] = ()


class Failed(AngariumError):
    """A step of an operation that cannot go on."""

    def __init__(self, kind: Kind, text: str, code: str = "") -> None:
        super().__init__(text)
        self.kind = kind
        self.code = code


def operation(
    work: Callable[P, Awaitable[T]],
) -> Callable[P, Awaitable[T | Failure]]:
    """Make an operation of a coroutine function: what it raises on purpose becomes its answer."""

    @wraps(work)
    async def answered(*args: P.args, **kwargs: P.kwargs) -> T | Failure:
        try:
            return await work(*args, **kwargs)
        except AngariumError as error:
            return failure_of(error)

    return answered


def failure_of(error: AngariumError) -> Failure:
    """The failure that an error means to the caller of an operation."""
    text = str(error)
    match error:
        case Failed(kind=kind, code=code):
            return Failure(kind=kind, text=text, code=code)
        case InvalidPolicy(problems=problems):
            return Failure(kind="invalid", text=text, problems=tuple(problems))
        case BadInput():
            return Failure(kind="invalid", text=text, problems=(text,))
        case Busy():
            return Failure(kind="conflict", text=text)
        case NotPermitted():
            return Failure(kind="not_allowed", text=text)
        case ApiError(code=code):
            return Failure(kind="unavailable", text=text, code=str(code))
        case Unavailable():
            return Failure(kind="unavailable", text=text)
        case Unusable():
            return Failure(kind="unusable", text=text)
        case _:
            return Failure(kind="refused", text=text)
