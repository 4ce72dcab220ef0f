"""A server with the users of `deploy/nats/permissions.conf`, and a node under these permissions."""

from collections.abc import Iterator

import pytest

from tests.support.processes.commands import PATIENCE_S, Running, Terminal, line_with
from tests.support.processes.nodes import ERASURES, SNAPSHOTS, shortened
from tests.support.processes.roles import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With an installation, a node and a receiver, all under these permissions."""
    directory = tmp_path_factory.mktemp("roles")
    with serving(directory) as server:
        operator = Terminal(directory, server.url("operator"))
        operator.done("setup")
        operator.done("publish", "acme.nobody", "{}")
        with shortened(ERASURES, SNAPSHOTS):
            terminal = Terminal(directory, server.url("node"))
        with terminal.start(
            "node", "--allow-http", "--allow-network", "127.0.0.0/8", "--log-level", "info"
        ) as node:
            line_with(node.stderr, "node.ready")
            yield server
            stop(node)


def stop(node: Running) -> None:
    """Stops the server; its log has everything that it refused."""
    node.terminate()
    _, log = node.communicate(timeout=PATIENCE_S)
    assert node.returncode == 0
    assert "permissions violation" not in log
