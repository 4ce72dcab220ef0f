"""The reply subjects that a node answers: inboxes, and nothing else.

A request names the subject for its answer, and NATS does not check whether the client may use that subject. A
node publishes with its own permissions: if it answered on any subject, every client that may send it a
request could make it write into the journal, the configurations or the JetStream API.
"""

import logging

log = logging.getLogger(__name__)

DEFAULT_INBOX_PREFIX = "_INBOX"
"""The default prefix of the inboxes of NATS clients."""

IMPORTED_REPLY_PREFIX = "_R_"
"""The prefix with which the server replaces reply subjects of other accounts; no client can use it."""

LENGTH_MAX = 512
"""Characters of a reply subject. A byte that is not UTF-8 takes four of them, and a node that publishes a
line of more than 4,096 characters is cut off."""


class Inboxes:
    """The inboxes that are answered: the usual ones, those of other accounts, and those of `prefixes`."""

    def __init__(self, *prefixes: str) -> None:
        self._beginnings = tuple(
            f"{prefix}." for prefix in (DEFAULT_INBOX_PREFIX, IMPORTED_REPLY_PREFIX, *prefixes)
        )
        self._warned = False

    def includes(self, reply: str) -> bool:
        """True if a request with this reply subject is answered; logs the first one that is not."""
        if not reply:
            return False
        if reply.startswith(self._beginnings) and len(reply) <= LENGTH_MAX:
            return True
        if not self._warned:
            self._warned = True
            log.warning("reply.refused", extra={"reply": reply[:LENGTH_MAX]})
        return False
