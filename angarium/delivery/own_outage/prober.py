"""A probe: connects to a host that a receiver names, sends nothing, and closes the connection.

The host is judged by the guard like that of an attempt, and only addresses that it allows are connected to.
"""

import asyncio

from angarium.delivery.connections.connect import (
    UNREACHED,
    NoAnswer,
    allowed_addresses,
    first_reached,
    within_deadline,
)
from angarium.delivery.connections.guard import Allowed, Guard
from angarium.delivery.http_exchange.target import Target

PROBE_TIMEOUT_S = 2.0


class Prober:
    """Makes probes, with the judgement of this guard."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def __call__(self, tenant: str, target: Target) -> bool | None:
        """True if a connection was opened in time; None if this says nothing about the network."""
        deadline = asyncio.get_running_loop().time() + PROBE_TIMEOUT_S

        async def connect(address: str, until: float) -> None:
            opening = asyncio.open_connection(address, target.port)
            _, writer = await within_deadline(opening, address, secure=False, deadline=until)
            writer.close()

        try:
            addresses = await allowed_addresses(self._guard, target, f"{tenant}.", deadline)
            await first_reached(addresses, deadline, connect)
        except NoAnswer as why:
            return False if why.kind in UNREACHED else None
        return True

    def address_of(self, target: Target) -> str:
        """The first address by which the target is known now; empty if none is."""
        verdict = self._guard.known_verdict(target, asyncio.get_running_loop().time())
        return verdict.addresses[0] if isinstance(verdict, Allowed) else ""
