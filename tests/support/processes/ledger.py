"""A process of `angarium ledger`: started, killed, and stopped as an operator stops it."""

import os
import signal
from pathlib import Path

from tests.support.fleet.fleet import Fleet
from tests.support.processes.commands import FORKS
from tests.support.secrecy import secrets_in


class LedgerProcess:
    """The processes of the command on one file, one after the other."""

    def __init__(self, fleet: Fleet, path: Path, said: Path) -> None:
        self._environment = {name: each for name, each in os.environ.items() if name[:9] != "ANGARIUM_"}
        self._arguments = ("ledger", "--to", f"sqlite:///{path}", "--nats", fleet.server.url)
        self._said = said

    async def start(self) -> None:
        self._process = await FORKS.start_quiet(
            self._arguments, self._said, self._said.parent, self._environment
        )

    async def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        await self._process.ended()

    async def ends(self) -> str:
        """Waits for the end with an error, and returns the log."""
        status = await self._process.ended()
        said = self._said.read_text()
        assert status == 1, said
        return said

    async def stop(self) -> None:
        """SIGTERM, which is the usual end of it."""
        self._process.send_signal(signal.SIGTERM)
        status = await self._process.ended()
        said = self._said.read_text()
        assert status == 0, said
        assert not secrets_in(said)
