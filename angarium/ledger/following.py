"""Runs the ledger's writer for an installation."""

from angarium.connecting import installation, open_jetstream
from angarium.ledger.sqlite import written
from angarium.ledger.store import path_of
from angarium.ledger.writer import Writer
from angarium.settings import Settings

KEEP_S = 30 * 86_400.0
"""How long rows are kept where nobody says otherwise."""


async def follow(settings: Settings, keep_s: float = KEEP_S, *, beside_a_node: bool = False) -> None:
    """Follow the journal until cancelled. Raises LedgerError and ConnectError."""
    path = path_of(settings.ledger)
    async with open_jetstream(settings, second=beside_a_node) as js, written(path) as store:
        await Writer(js, installation(settings).names, store, keep_s=keep_s).run()
