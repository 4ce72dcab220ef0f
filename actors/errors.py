"""Errors of the deciding floor: what a caller can mend, in one sentence that names field and remedy."""


class AngariumError(Exception):
    """Whatever Angarium raises on purpose; its text is meant for people."""


class InvalidPolicy(AngariumError):
    """A receiver's configuration that cannot be used; `problems` says why, one sentence a field."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class InvalidName(AngariumError):
    """A tenant, receiver or event type that breaks the naming rules."""


class NewerVersion(AngariumError):
    """Something in the journal or a bucket was written by a newer Angarium; this one must not guess at it."""
