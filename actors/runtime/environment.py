"""The environment of actors: the claim of their shard, its ports, and what both are to an actor."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Struct, field

from actors.configuration.policy import AlertLimits, AlertSettings
from actors.delivery_totals import DeliveryTotals
from actors.machine.alerts.health_changes import HealthChange
from actors.machine.bucket import Unclean
from actors.machine.facts import AlertFact
from actors.machine.state import State
from actors.memory.failing_receivers import FailingReceivers
from actors.memory.unacked import NodeHolders, ShardUnacked
from actors.ports import (
    AlertWriter,
    Backlog,
    Clock,
    DeadLetterWriter,
    DownHosts,
    NoDownHosts,
    NoOutage,
    OwnOutage,
    Policies,
    Recorder,
    Sender,
    Snapshots,
)


class ShardClaim(Struct, frozen=True, kw_only=True):
    """The claim under which a shard's memory begins.

    - `at`: when it was claimed; `position`: the last one of the deliveries then.
    - `unclean`: the last owner that vanished without a clean release, if there was one.
    - `floor`: where reading begins.
    - `needed`: no earlier owner needed anything below this position.
    """

    epoch: int
    at: float
    position: int
    unclean: Unclean | None = None
    floor: int
    needed: int


class HostPorts(Struct, frozen=True, kw_only=True):
    """All that a host reaches outside of its memory.

    - `within_lease`: asked before every first byte.
    - `ack`: takes the position up to which all messages are released.
    - `set_pulling_paused`: stops the requests for messages, or sends them again.
    - `saturated`: asked before more messages are requested.
    - `node_holders`: the receivers that hold messages, in all shards of the node.
    - `refuse`: takes the reason why this node cannot run the shard.
    - `on_health_change`: takes changes of the health of receivers, for the log.
    - `on_alert`: takes the alerts that are confirmed, for the log.
    - `alerts`: publishes the events about them.
    - `alert_limits`: returns the limits of alerts about a receiver, with the settings of its configuration.
    - `all_know_handshakes`: asked before each handshake; if not, events wait for it.
    - `all_know_transforms`: asked before a transform is adopted; if not, events wait for it.
    - `all_know_paces`: asked before a learnt pace is recorded; if not, nothing is learnt.
    - `all_know_offline_pings`: asked before each ping in place of an event; if not, events are sent.
    - `outage`: asked before each attempt; tells whether this node can connect to no host.
    - `down_hosts`: asked before each attempt; gives turns to the receivers of a host that is down.
    - `may_record_alerts`: asked in each round; if not, alerts stay as they are.
    """

    clock: Clock
    recorder: Recorder
    sender: Sender
    backlog: Backlog
    dead_letters: DeadLetterWriter
    snapshots: Snapshots
    policies: Policies
    totals: DeliveryTotals
    within_lease: Callable[[], bool]
    ack: Callable[[int], None]
    set_pulling_paused: Callable[[bool], None]
    saturated: Callable[[], bool]
    refuse: Callable[[str], None]
    on_health_change: Callable[[HealthChange], None]
    on_alert: Callable[[AlertFact], None]
    alerts: AlertWriter
    alert_limits: Callable[[str, AlertSettings], AlertLimits]
    outage: OwnOutage = field(default_factory=NoOutage)
    down_hosts: DownHosts = field(default_factory=NoDownHosts)
    may_record_alerts: Callable[[], bool] = lambda: True
    all_know_handshakes: Callable[[], bool] = lambda: True
    all_know_transforms: Callable[[], bool] = lambda: True
    all_know_paces: Callable[[], bool] = lambda: True
    all_know_offline_pings: Callable[[], bool] = lambda: True
    node_holders: NodeHolders = field(default_factory=NodeHolders)


class ActorEnvironment(Protocol):
    """The environment of an actor: the ports of its shard, and the shard's claim."""

    clock: Clock
    recorder: Recorder
    shard_unacked: ShardUnacked
    sender: Sender
    backlog: Backlog
    dead_letters: DeadLetterWriter
    policies: Policies
    totals: DeliveryTotals
    on_health_change: Callable[[HealthChange], None]
    on_alert: Callable[[AlertFact], None]
    failing: FailingReceivers
    refuse: Callable[[str], None]
    outage: OwnOutage
    down_hosts: DownHosts
    epoch: int
    claimed_at: float
    claim_position: int
    unclean: Unclean | None
    stopped: bool

    @property
    def released_to(self) -> int:
        """The position up to which all events are released and decided, so none belongs to a new receiver."""
        ...

    @property
    def undecided_to(self) -> int:
        """The last position that may have an event for an unknown receiver only in the stream; 0 if none."""
        ...

    def may_start(self) -> bool:
        """True if an attempt may take its token now; if not, all actors are woken once it may."""
        ...

    def all_know_handshakes(self) -> bool:
        """True if every node that may take over knows the facts about handshakes."""
        ...

    def all_know_transforms(self) -> bool:
        """True if every node that may take over knows the facts about transforms."""
        ...

    def all_know_paces(self) -> bool:
        """True if every node that may take over knows the fact about paces."""
        ...

    def all_know_offline_pings(self) -> bool:
        """True if every node that may take over knows the outcomes of pings in place of events."""
        ...

    def within_lease(self) -> bool:
        """True if a first byte may leave now."""
        ...

    def may_have_posted(self, state: State, first_unacked: int) -> bool:
        """True if an owner that vanished may have posted an unrecorded request to this receiver."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the shard."""
        ...

    def attempt_started(self) -> None:
        """Count an attempt that is in flight now."""
        ...

    def attempt_ended(self) -> None:
        """Count an attempt that is over."""
        ...

    async def confirmed_to(self, index: int) -> None:
        """Return once the journal holds the fact with that index."""
        ...
