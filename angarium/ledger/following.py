"""Runs the ledger's writer for an installation."""

import asyncio
import logging

from angarium.connecting import installation, open_jetstream
from angarium.ledger.opening import written
from angarium.ledger.store import LedgerAway
from angarium.ledger.writer import Writer
from angarium.settings import Settings

KEEP_DEFAULT_S = 30 * 86_400.0
"""Default time that rows are kept."""
RETRY_EVERY_S = 2.0
"""Pause before a database that went away is asked again."""

log = logging.getLogger(__name__)


async def follow(settings: Settings, keep_s: float = KEEP_DEFAULT_S, *, beside_a_node: bool = False) -> None:
    """Follow the journal until cancelled. Raises LedgerError and ConnectError.

    A database that goes away is waited for, unless it was not there in the beginning.
    """
    async with open_jetstream(settings, second=beside_a_node) as js:
        names, opened = installation(settings).names, False
        while True:
            try:
                async with written(settings.ledger, keep_s) as store:
                    if opened:
                        log.info("ledger.back")
                    opened = True
                    await Writer(js, names, store, keep_s=keep_s).run()
            except LedgerAway as error:
                if not opened:
                    raise
                log.warning("ledger.away", extra={"why": str(error)})
                await asyncio.sleep(RETRY_EVERY_S)
