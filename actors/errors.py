"""The errors of Angarium, and the kinds of them that callers tell apart; the text is a sentence for people.

`Unavailable` passes: ask again. `Unusable` does not: the shard is refused until a person has acted.
`BadInput` has to be mended by the caller. All others mean that what was asked for failed.
"""


class AngariumError(Exception):
    """An error that Angarium raises on purpose; its text says what is wrong and, where it can, the remedy."""


class Unavailable(AngariumError):
    """A question could not be answered just now (a time-out, no leader); ask again."""


class Unusable(AngariumError):
    """Something stored that must not be guessed at: a shard that needs it is refused until it is repaired."""


class BadInput(AngariumError):
    """Something given to us that cannot be used; its text names the field and the remedy."""


class InvalidPolicy(BadInput):
    """A receiver's configuration that cannot be used; `problems` says why, one sentence a field."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class InvalidName(BadInput):
    """A tenant, receiver or event type that breaks the naming rules."""


class NewerVersion(Unusable):
    """Something in the journal or a bucket was written by a newer Angarium; this one must not guess at it."""


class ControlRefused(AngariumError):
    """A control request that cannot be granted; `code` is one token, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
