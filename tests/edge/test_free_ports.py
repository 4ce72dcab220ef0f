"""A machine without a free port to connect from: the attempt says so, and others continue.

Four ports are all there are in a network of the test's own, which Linux gives to every user that may have one
(unshare(1), ip(7)); where it does not, there is nothing to try.
"""

import subprocess
import sys

import pytest

from tests.support.processes.commands import ROOT

ALONE = ("unshare", "--user", "--map-root-user", "--net")

FEW_PORTS = """
import asyncio, fcntl, socket, struct, sys
from ipaddress import ip_network

from angarium.delivery.connections.guard import Guard
from angarium.delivery.egress.paths import EgressPaths
from angarium.delivery.http1_transport import Http1Transport
from angarium.delivery.httpx_transport import HttpxTransport
from angarium.delivery.http_exchange.target import parse_target
from angarium.delivery.http_exchange.transport import Request
from tests.contract.transport.receiver import OK, Receiver
from tests.support.waiting import until

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as ports:
    ports.write("40000 40003")


async def main(make):
    go = asyncio.Event()

    async def holds(peer):
        while True:
            await peer.request()
            await go.wait()
            await peer.send(OK)

    receiver = Receiver()
    receiver.plays(holds)
    await receiver.start(port=8080)
    transport = make(Guard(allow_http=True, allow_networks=[ip_network("127.0.0.0/8")]))

    async def post():
        target = parse_target("http://127.0.0.1:8080/")
        return await transport.post(
            Request(
                receiver="acme.billing", target=target, lines=(), body=b"", timeout_s=30.0,
                may_start=lambda: True,
            )
        )

    held = [asyncio.create_task(post()) for _ in range(4)]
    await until(lambda: len(receiver.requests) == 4)
    print((await post()).kind)
    go.set()
    print(*[(await each).status for each in held])
    print((await post()).status)
    await transport.close()
    await receiver.stop()


makers = {"http1": lambda guard: Http1Transport(EgressPaths(guard)), "httpx": HttpxTransport}
asyncio.run(main(makers[sys.argv[1]]))
"""


def alone(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs the test in a network of its own."""
    return subprocess.run(
        (*ALONE, *command), capture_output=True, text=True, check=False, cwd=ROOT, timeout=100
    )


@pytest.fixture(scope="module", autouse=True)
def allowed() -> None:
    try:
        may = alone("true").returncode == 0
    except FileNotFoundError:
        may = False
    if not may:
        pytest.skip("this system gives nobody a network of their own")


@pytest.mark.parametrize("kind", ["http1", "httpx"])
def test_a_node_out_of_ports_blames_itself(kind: str) -> None:
    done = alone(sys.executable, "-c", FEW_PORTS, kind)
    assert done.stdout.split() == ["overload", *["200"] * 5], done.stderr
