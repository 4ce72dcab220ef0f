"""The findings of `angarium doctor`, one line each: the subject, a sentence, and the remedy."""

from collections.abc import Awaitable, Sequence
from typing import Literal

from msgspec import Struct

from angarium.quantities import count_text
from streams.nats.errors import NotPermitted

Level = Literal["ok", "warning", "problem"]
NAMED_MAX = 8
"""Names in one finding."""
READ_STATE = "find the reason in its state"
ReceiverCondition = Literal[
    "misconfigured", "disabled", "unverified", "offline", "failing", "throttled", "behind"
]
"""The conditions of an unhealthy receiver, the worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """A finding about one subject.

    - `text`: a whole sentence, so that it can be read without the subject.
    - `remedy`: what to do, as a request; empty if there is nothing to do.
    - `command`: the command that does it.
    - `level`: a `problem` stays until an operator solves it. A `warning` is about a receiver or a tenant,
      which the installation handles as it should, or about something that an operator has begun: a drained
      node, an upgrade.
    - `ok`: False for a problem.
    - `receiver`, `condition`: only of a finding about one receiver.
    """

    subject: str
    ok: bool
    text: str
    remedy: str = ""
    command: str = ""
    level: Level
    receiver: str | None = None
    condition: ReceiverCondition | None = None

    @property
    def sentence(self) -> str:
        """The whole finding, for the command line."""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.text}{remedy} ({self.command})" if self.command else self.text + remedy


def few(things: Sequence[object]) -> str:
    """The first of them as a text, and whether there are more."""
    return ", ".join(map(str, things[:NAMED_MAX])) + (" …" if len(things) > NAMED_MAX else "")


def are(count: int, noun: str) -> str:
    """`1 event is`, or `2 events are`: the beginning of a sentence."""
    return f"{count_text(count, noun)} {'is' if count == 1 else 'are'}"


def ok(subject: str, text: str) -> Finding:
    return Finding(subject=subject, ok=True, text=text, level="ok")


def warning(subject: str, text: str, remedy: str = "", command: str = "") -> Finding:
    return Finding(subject=subject, ok=True, text=text, remedy=remedy, command=command, level="warning")


def problem(subject: str, text: str, remedy: str = "", command: str = "") -> Finding:
    return Finding(subject=subject, ok=False, text=text, remedy=remedy, command=command, level="problem")


async def if_permitted(subject: str, check: Awaitable[list[Finding]]) -> list[Finding]:
    """The findings of a check, or a warning that our user may not make it."""
    try:
        return await check
    except NotPermitted as error:
        return [warning(subject, f"this was not checked: {error}")]
