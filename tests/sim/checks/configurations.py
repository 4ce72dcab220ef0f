"""Checks the configuration of each attempt: it was in force when the process began, or is newer.

An event of a region that is not among those of this configuration is not sent.
"""

from collections.abc import Callable

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.ports import Attempt, BatchAttempt
from streams.installation.topology import Names
from tests.sim.server.streams.store import Stored
from tests.sim.world.process import Process


class Configurations:
    """All configurations that were stored, of each receiver, each with its time; None for a removal."""

    def __init__(self, names: Names, fail: Callable[[str], None]) -> None:
        self._names = names
        self._fail = fail
        self._stored: dict[str, list[tuple[float, Policy | None]]] = {}

    def stored(self, message: Stored, now: float) -> None:
        receiver = self._names.receiver_of_configuration(message.subject)
        policy = parse(message.data, strict=False)[0] if message.data else None
        self._stored.setdefault(receiver, []).append((now, policy))

    def had_batches(self, receiver: str) -> bool:
        """True if the receiver was ever configured with batches."""
        return any(policy is not None and policy.batch for _, policy in self._stored.get(receiver, ()))

    def started(self, process: Process, attempt: Attempt | BatchAttempt) -> None:
        """Judge an attempt that starts now."""
        stored = self._stored[attempt.receiver]
        replaced = [until <= process.began_at for until, _ in stored[1:]]
        in_force = [policy for (_, policy), gone in zip(stored, [*replaced, False], strict=True) if not gone]
        if attempt.policy not in in_force:
            self._fail(f"{attempt.receiver}: {process.name} uses what was replaced before it began")
        for event, _ in attempt.numbered:
            if event.region and attempt.policy.region and event.region not in attempt.policy.region:
                self._fail(f"{attempt.receiver}: {event.position} is sent out of its region, {event.region}")
