"""Transports whose paths lead through a proxy of the test, with names that resolve as the test says."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trustme

from angarium.delivery.connections.guard import Guard
from angarium.delivery.connections.pool import DEFAULT_LIMITS, ConnectionLimits
from angarium.delivery.connections.resolver import Resolved
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.egress_settings import Profiles, ProxySettings, TlsSettings
from tests.contract.transport.conftest import LOOPBACK
from tests.contract.transport.egress.proxy import TestProxy

PASSWORD = "s3cret/pass:word"


class Names:
    """Resolves the names that it knows, and notes which were asked for; no other name exists."""

    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, ...]] = dict.fromkeys(
            ("hook.example", "proxy.example"), ("127.0.0.1",)
        )
        self.asked: list[str] = []

    async def resolve(self, host: str) -> Resolved:
        self.asked.append(host)
        if host not in self.addresses:
            raise OSError("no such name")
        return Resolved(self.addresses[host], 30.0)


class Egress:
    """Makes transports with given profiles, and closes them. `paths` are those of the last one."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._made: list[Http1Transport] = []
        self.paths = EgressPaths(Guard())

    def transport(
        self,
        *,
        proxies: dict[str, ProxySettings] | None = None,
        tls: dict[str, TlsSettings] | None = None,
        guard: Guard | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> Http1Transport:
        guard = guard or Guard(allow_http=True, allow_networks=LOOPBACK, resolver=self._names)
        self.paths = EgressPaths(guard, Profiles(proxies or {}, tls or {}), resolver=self._names)
        self._made.append(Http1Transport(self.paths, limits=limits))
        return self._made[-1]

    async def close(self) -> None:
        for transport in self._made:
            await transport.close()


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
async def egress(names: Names) -> AsyncIterator[Egress]:
    egress = Egress(names)
    yield egress
    await egress.close()


@pytest.fixture
async def proxy() -> AsyncIterator[TestProxy]:
    proxy = TestProxy()
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, bytes | str], str]:
    """Writes a file and returns its path."""

    def write(name: str, content: bytes | str) -> str:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    return write
