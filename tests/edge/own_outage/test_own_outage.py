"""A node whose network is gone blames no receiver, makes only probes, and delivers when it is back.

Its network is one of the test's own, which Linux gives to every user that may have one (unshare(1)); where it
does not, or where ip(8) is missing, there is nothing to try.
"""

import subprocess
import sys

import pytest

from tests.support.processes.commands import ROOT

ALONE = ("unshare", "--user", "--map-root-user", "--net")
VIRTUAL_CABLE = "ip link add v0 type veth peer name v1 && ip address add 10.8.0.1/24 dev v0"


def alone(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a network of its own."""
    return subprocess.run(
        (*ALONE, *command), capture_output=True, text=True, check=False, cwd=ROOT, timeout=280
    )


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    try:
        may = alone("sh", "-c", VIRTUAL_CABLE).returncode == 0
    except FileNotFoundError:
        may = False
    if not may:
        pytest.skip("this system gives nobody a network of their own, or has no ip(8)")


@pytest.mark.parametrize(
    "manner",
    [("unreachable",), ("silent",), ("unreachable", "names"), ("silent", "names")],
    ids=" with ".join,
)
def test_no_receiver_fails_while_its_node_has_no_network(manner: tuple[str, ...]) -> None:
    done = alone(sys.executable, "-m", "tests.edge.own_outage.scene", *manner)
    assert done.stdout.strip() == "ours True begun 1", done.stderr[-3000:]
