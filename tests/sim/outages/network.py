"""The network between nodes and receivers: some nodes have none."""

from actors.machine.outcome import Answered, Failed, Outcome
from actors.ports import Attempt, BatchAttempt, Sender
from angarium.delivery.http_exchange.target import Target, parse_target
from angarium.delivery.own_outage.watch import OutageWatch
from tests.sim.run import Run
from tests.sim.world.process import Process
from tests.sim.world.receivers import SimSender

UNREACHED = Failed(error="connect", detail="network is unreachable", latency_ms=1.0, unreached=True)


def url_of(receiver: str) -> str:
    """The URL of a receiver, at a host of its own: its name says whose it is."""
    return f"https://hook.{receiver.replace('.', '-')}.com/"


class Network:
    """`cut_off`: the names of nodes without a network; `tried`: the attempts that they made all the same."""

    def __init__(self, run: Run) -> None:
        self.cut_off = set[str]()
        self.tried = 0
        self.watches: dict[str, OutageWatch] = {}
        self._run = run
        run.sender_of = self.sender_of

    def sender_of(self, process: Process) -> tuple[Sender, OutageWatch | None]:
        """The sender of a node, with its watch."""

        async def probe(tenant: str, target: Target) -> bool | None:
            receiver = target.host.split(".")[1].replace("-", ".")
            return process.name not in self.cut_off and not self._run.receivers.is_away(receiver)

        watch = self.watches[process.name] = OutageWatch(probe)
        return NetworkSender(self, process, SimSender(process, self._run.receivers), watch), watch


class NetworkSender:
    """Makes attempts over that network, and tells the watch of each connection, as the transport does."""

    def __init__(self, network: Network, process: Process, sender: SimSender, watch: OutageWatch) -> None:
        self._network = network
        self._process = process
        self._sender = sender
        self._watch = watch

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        """See `Sender`."""
        if self._process.name in self._network.cut_off:
            self._network.tried += 1
            return await self._watch.seen(attempt.receiver, attempt.policy, UNREACHED)
        outcome = await self._sender.send(attempt)
        if isinstance(outcome, Answered):
            self._watch.connected(attempt.receiver, parse_target(attempt.policy.url), "")
        return await self._watch.seen(attempt.receiver, attempt.policy, outcome)
