"""Handshakes: nothing is posted to a receiver whose proof is not recorded.

What a receiver has proved is what came from the receiver itself, under the configuration of the attempt.
"""

from collections.abc import Callable

from actors.configuration.policy import Policy
from actors.machine import facts as f
from actors.machine.handshake.proof import handshake_key
from actors.ports import Attempt, BatchAttempt

Terms = tuple[str, str, tuple[str, ...]]
"""The subject of a handshake: its kind, the URL and the secrets."""


class Handshakes:
    """The handshakes of all receivers."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._proved: set[tuple[str, Terms]] = set()
        self._recorded: set[tuple[str, str]] = set()
        self.made: list[str] = []

    def proved(self, receiver: str, policy: Policy) -> None:
        """The receiver has answered with the proof, be it heard or not."""
        self._proved.add((receiver, _terms(policy)))

    def record(self, fact: f.HandshakeFact) -> None:
        """A fact that is in the journal."""
        if isinstance(fact, f.HandshakeSucceeded):
            self._recorded.add((fact.receiver, fact.key))

    def started(self, attempt: Attempt | BatchAttempt) -> None:
        """Judge a request that starts now."""
        receiver, policy = attempt.receiver, attempt.policy
        kind = attempt.kind if isinstance(attempt, Attempt) else "batch"
        if kind == "handshake":
            self.made.append(receiver)
        elif policy.handshake != "none":
            if (receiver, _terms(policy)) not in self._proved:
                self._fail(f"{receiver}: an {kind} is posted, and the receiver has not proved itself")
            if (receiver, handshake_key(policy)) not in self._recorded:
                self._fail(f"{receiver}: an {kind} is posted, and its proof is not recorded")


def _terms(policy: Policy) -> Terms:
    return policy.handshake, policy.url, (*policy.secrets, *(each.secret for each in policy.old_secrets))
