"""Exceptions for failures between Angarium and NATS.

Only a failure that stops the caller's current work is an exception. A publish that is refused or unanswered
is an expected outcome and therefore a value (`streams.nats.answers`). A request without an answer raises
`actors.errors.Unavailable`, since the actors ask through ports.
"""

from actors.errors import AngariumError, Unavailable, Unusable


class Disconnected(AngariumError):
    """We closed the connection to NATS; nothing more can be sent on it."""


class NotPermitted(Unavailable):
    """NATS does not permit this request to our user; the message names the subject and the remedy.

    `final`: the request must not be repeated. A node repeats it, since an operator may grant the permission
    meanwhile, but a person waits for a command.
    """

    def __init__(self, why: str, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final


def not_offered(subject: str) -> NotPermitted:
    """The exception for a request that nothing answers since our account does not import its subject."""
    return NotPermitted(
        f"NATS does not offer {subject} to the account of this user: use another user, such as an operator, "
        "or import it as deploy/nats/permissions.conf shows",
        final=True,
    )


class ConnectError(AngariumError):
    """No connection could be made; the message names the server and the remedy."""


class ApiError(AngariumError):
    """A refusal of the JetStream API.

    `code` is the server's `err_code` (such as 10059, stream not found), which is stable; the HTTP-like `code`
    of the same answer is too coarse to be useful.
    """

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} (JetStream error {code})")
        self.code = code
        self.description = description


class SetupError(AngariumError):
    """An existing installation contradicts the settings; the message carries both values."""


class ServerError(AngariumError):
    """The embedded NATS server cannot run; the message says why and what to do."""


class StreamRecreated(Unusable):
    """A stream or bucket is not the one that others refer to; the message names it and both values."""


class RepairError(AngariumError):
    """A shard cannot be repaired in its current condition; the message says why and what to do."""


class NotOurs(Unusable):
    """Data under one of our names that no Angarium wrote; the message says where it is."""
