"""Errors of operations that cannot do what they were asked to; each text is one sentence for people.

`angarium.cli.main` makes a line and an exit status of them: 2 for a `BadRequest`, 1 for all others.
"""

from actors.errors import AngariumError, BadInput


class BadRequest(BadInput):
    """A request that contradicts itself or what is stored; asked in another way, it can be done."""


class NotFound(AngariumError):
    """A receiver that is not there."""


class Conflict(AngariumError):
    """Somebody else changed at the same moment what was to be changed; nothing was done."""


class Refused(AngariumError):
    """The owner of a receiver, or NATS, says no; `code` is one token."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotAllowed(AngariumError):
    """NATS does not permit our user to do that."""


class Unanswered(AngariumError):
    """Nobody said whether it was done, or nobody is there to do it."""
