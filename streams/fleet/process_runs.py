"""The runs of a node: each start of its process is one, with a random id."""

from msgspec import Struct


class ProcessRuns(Struct, frozen=True):
    """The runs of a node that its supervisor knows.

    - `own`: that of the new process; drawn by it if empty.
    - `ended`: those of earlier processes that have certainly ended, so that no lease of theirs is in force.
    """

    own: str = ""
    ended: tuple[str, ...] = ()


UNSUPERVISED = ProcessRuns()
