"""The network between nodes and receivers: some nodes have none."""

from actors.machine.outcome import Answered, Failed, Outcome
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.connections.down_hosts import DownHosts
from angarium.delivery.http_exchange.target import Target, parse_target
from angarium.delivery.own_outage.outage_detector import OutageDetector
from tests.sim.run import NodeSender, Run
from tests.sim.world.process import Process
from tests.sim.world.receivers import SimSender

UNREACHED = Failed(error="connect", detail="network is unreachable", latency_ms=1.0, unreached=True)


def url_of(receiver: str) -> str:
    """The URL of a receiver, at a host of its own: its name says whose it is."""
    return f"https://hook.{receiver.replace('.', '-')}.com/"


class Network:
    """`cut_off`: the names of nodes without a network; `tried`: the attempts that they made all the same.

    `made`: the attempts of nodes with a network.
    """

    def __init__(self, run: Run) -> None:
        self.cut_off = set[str]()
        self.tried = self.made = 0
        self.detectors: dict[str, OutageDetector] = {}
        self._run = run
        run.sender_of = self.sender_of

    def sender_of(self, process: Process) -> NodeSender:
        """The sender of a node, with its detector."""

        async def probe(tenant: str, target: Target) -> bool | None:
            receiver = target.host.split(".")[1].replace("-", ".")
            return process.name not in self.cut_off and not self._run.receivers.is_away(receiver)

        detector = self.detectors[process.name] = OutageDetector(probe)
        hosts = DownHosts()
        sender = SimSender(process, self._run.receivers)
        return NetworkSender(self, process, sender, detector, hosts), detector, hosts


class NetworkSender:
    """Makes attempts over that network, and tells the detector of each connection, as the transport does."""

    def __init__(
        self,
        network: Network,
        process: Process,
        sender: SimSender,
        detector: OutageDetector,
        hosts: DownHosts,
    ) -> None:
        self._network = network
        self._process = process
        self._sender = sender
        self._detector = detector
        self._hosts = hosts

    async def send(self, attempt: Attempt | BatchAttempt) -> Outcome:
        """See `Sender`."""
        if self._process.name in self._network.cut_off:
            self._network.tried += 1
            return await self._detector.attributed_outcome(attempt.receiver, attempt.policy, UNREACHED)
        target = parse_target(attempt.policy.url)
        self._hosts.begun(attempt.receiver, target)
        self._network.made += 1
        try:
            outcome = await self._sender.send(attempt)
            if isinstance(outcome, Answered):
                self._detector.connected(attempt.receiver, target, "")
                self._hosts.reached(target)
            seen = await self._detector.attributed_outcome(attempt.receiver, attempt.policy, outcome)
        except BaseException:
            self._hosts.ended(attempt.receiver, target)
            raise
        if isinstance(seen, Failed) and seen.unreached:
            self._hosts.unreached(attempt.receiver, target)
        else:
            self._hosts.ended(attempt.receiver, target)
        return seen
