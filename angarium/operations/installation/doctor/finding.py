"""The findings of `angarium doctor`, one line each."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warning", "problem"]
NAMED_MAX = 8
"""Names in one finding."""
ReceiverAilment = Literal[
    "misconfigured", "disabled", "unverified", "offline", "failing", "throttled", "behind"
]
"""The ailments of a receiver, the worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """A finding about one subject; `remedy` says what to do about it, `command` with which command.

    A `problem` stays until an operator solves it; every other finding is `ok`. A `warning` is about a
    receiver or a tenant, which the installation handles as it should, or about something that an operator has
    begun: a drained node, an upgrade. A finding about one receiver names it,
    and its ailment in one word.
    """

    subject: str
    ok: bool
    text: str
    remedy: str = ""
    command: str = ""
    level: Level
    receiver: str | None = None
    ailment: ReceiverAilment | None = None

    @property
    def sentence(self) -> str:
        """The whole finding, for the command line."""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.text}{remedy} ({self.command})" if self.command else self.text + remedy


def few(things: Sequence[object]) -> str:
    """The first of them as a text, and whether there are more."""
    return ", ".join(map(str, things[:NAMED_MAX])) + (" …" if len(things) > NAMED_MAX else "")


def ok(subject: str, text: str) -> Finding:
    return Finding(subject=subject, ok=True, text=text, level="ok")


def warning(subject: str, text: str, remedy: str = "", command: str = "") -> Finding:
    return Finding(subject=subject, ok=True, text=text, remedy=remedy, command=command, level="warning")


def problem(subject: str, text: str, remedy: str = "", command: str = "") -> Finding:
    return Finding(subject=subject, ok=False, text=text, remedy=remedy, command=command, level="problem")
