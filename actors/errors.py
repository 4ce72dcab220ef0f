"""The errors of Angarium, in the kinds that callers distinguish; the text is a sentence for people.

`Unavailable` is temporary: ask again. `Unusable` is not: the shard is refused until a person has acted.
`BadInput` has to be corrected by the caller. All others mean that the request failed.
"""


class AngariumError(Exception):
    """An error that Angarium raises on purpose; its text says what is wrong and, if it can, the remedy."""


class Unavailable(AngariumError):
    """A question could not be answered just now (a time-out, no leader); ask again."""


class Unusable(AngariumError):
    """Stored data that must not be guessed at: a shard that needs it is refused until it is repaired."""


class BadInput(AngariumError):
    """Input that cannot be used; the text names the field and the remedy."""


class InvalidPolicy(BadInput):
    """A receiver's configuration that cannot be used; `problems` says why, in one sentence for each field."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class InvalidName(BadInput):
    """A tenant, receiver or event type that breaks the naming rules."""


class NewerVersion(Unusable):
    """An entry of the journal or a bucket was written by a newer Angarium; this one must not guess at it."""


class ControlDenied(AngariumError):
    """A control request that cannot be granted; `code` is one token, the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
