"""The runs of a node: each start of its process is one, with a random id."""

from msgspec import Struct


class ProcessRuns(Struct, frozen=True):
    """The runs of a node that its supervisor knows.

    - `own`: that of the new process; drawn by it if empty.
    - `ended`: runs of earlier processes that have ended for certain; their leases are void.
    """

    own: str = ""
    ended: tuple[str, ...] = ()


UNSUPERVISED = ProcessRuns()
