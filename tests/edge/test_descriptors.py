"""A node and its limit of open files, in its own process: a limit cannot be raised again."""

import subprocess
import sys

import pytest

from angarium.delivery.connections.pool import DEFAULT_LIMITS
from angarium.node.descriptors import PORTS_TO_A_HOST, SPARE_COUNT, connections_max, per_host_max

resource = pytest.importorskip("resource", reason="this system has no limit of open files")

ASK = """
import resource, sys
from angarium.node.descriptors import connections_max
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(connections_max(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def asked(soft: int, hard: int) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    return [int(each) for each in done.stdout.split()]


def test_the_limit_is_raised_as_far_as_it_goes() -> None:
    assert asked(500, 1000) == [1000 - SPARE_COUNT, 1000]


def test_no_more_is_taken_than_is_needed() -> None:
    most = DEFAULT_LIMITS.connections_max
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < most + SPARE_COUNT + 1:
        pytest.skip("this machine does not allow that many open files")
    assert asked(500, most + SPARE_COUNT + 1) == [most, most + SPARE_COUNT]


def test_a_very_low_limit_leaves_one_connection() -> None:
    assert asked(100, 100) == [1, 100]


def test_a_system_that_allows_less_than_it_says_gives_as_much_as_it_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS reports no hard limit, and refuses values above an internal one."""
    raised = [256]

    def setrlimit(_: int, limits: tuple[int, int]) -> None:
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")
        raised.append(limits[0])

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert connections_max() == raised[-1] - SPARE_COUNT
    assert 5_000 < raised[-1] <= 10_240


def test_workers_share_the_ports_of_the_machine() -> None:
    alone = DEFAULT_LIMITS.per_host_max
    assert [per_host_max(workers) for workers in (1, 2, 6, 8, 64)] == [alone, alone, alone, 3072, 384]
    assert all(workers * per_host_max(workers) <= PORTS_TO_A_HOST for workers in range(1, 65))
