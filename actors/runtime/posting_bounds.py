"""The bounds of one receiver: whether an attempt may start, and which events may have been posted."""

from collections.abc import Sized

from actors.machine.scheduling.view import FixedBounds
from actors.machine.state import UNCONFIRMED_MAX, UNRECORDED_MAX
from actors.memory.cursor import Cursor
from actors.memory.unacked import ReceiverUnacked
from actors.runtime.environment import ActorEnvironment
from actors.runtime.live_state import LiveState


class PostingBounds:
    """The bounds that the shard, and the owners before this one, set to one receiver."""

    __slots__ = ("_cursor", "_environment", "_in_flight", "_live", "_unacked")

    def __init__(
        self,
        environment: ActorEnvironment,
        live: LiveState,
        cursor: Cursor,
        unacked: ReceiverUnacked,
        in_flight: Sized,
    ) -> None:
        self._environment = environment
        self._live = live
        self._cursor = cursor
        self._unacked = unacked
        self._in_flight = in_flight

    @property
    def may_start(self) -> bool:
        """True if nothing in the shard forbids an attempt."""
        return self._live.unconfirmed_deliveries < UNCONFIRMED_MAX and self._environment.may_start()

    @property
    def may_reach(self) -> bool:
        """True unless this node can connect to no host; then the receiver is woken once it can."""
        outage, policy = self._environment.outage, self._live.policy
        return outage.since is None or policy is None or outage.may_try(self._live.receiver, policy)

    @property
    def may_try_host(self) -> bool:
        """True unless the receiver's host is down; then it is woken for its turn, which this takes."""
        hosts, policy = self._environment.down_hosts, self._live.policy
        if not hosts.count or policy is None:
            return True
        return hosts.may_try(self._live.receiver, policy, has_attempts=bool(self._in_flight))

    @property
    def room(self) -> int:
        """Number of further events that may be in flight, or settled and not confirmed."""
        return UNCONFIRMED_MAX - self._live.unconfirmed_deliveries - len(self._in_flight)

    @property
    def epoch(self) -> int:
        """The epoch of the shard's present owner."""
        return self._environment.epoch

    @property
    def released_to(self) -> int:
        """The position up to which no event belongs to a new receiver."""
        return self._environment.released_to

    @property
    def posted_to_max(self) -> int:
        """The position beyond which no owner can have posted an event."""
        environment, cursor = self._environment, self._cursor
        return max(
            environment.claim_position, environment.shard_unacked.received, cursor.read_to, cursor.seen_to
        )

    @property
    def all_know_handshakes(self) -> bool:
        """True if every node that may take over knows the facts about handshakes."""
        return self._environment.all_know_handshakes()

    @property
    def all_know_transforms(self) -> bool:
        """True if every node that may take over knows the facts about transforms."""
        return self._environment.all_know_transforms()

    @property
    def all_know_offline_pings(self) -> bool:
        """True if every node that may take over knows the outcomes of pings in place of events."""
        return self._environment.all_know_offline_pings()

    @property
    def policy_revision(self) -> int:
        """The revision of the configuration in memory."""
        return self._environment.policies.revision(self._live.receiver)

    def shown(self) -> FixedBounds:
        """The bounds as people are shown them: asking for them probes no host, and takes no turn."""
        environment, policy = self._environment, self._live.policy
        return FixedBounds(
            may_start=self.may_start,
            may_reach=policy is None or not environment.outage.holds(policy),
            may_try_host=policy is None or not environment.down_hosts.is_down(policy),
            room=self.room, epoch=self.epoch, released_to=self.released_to, posted_to_max=self.posted_to_max,
            all_know_handshakes=self.all_know_handshakes, all_know_transforms=self.all_know_transforms,
            all_know_offline_pings=self.all_know_offline_pings, policy_revision=self.policy_revision,
        )  # fmt: skip

    @property
    def posted_to(self) -> int:
        """The last position that an owner that vanished may have posted unrecorded; 0 if there is none."""
        environment, unclean = self._environment, self._environment.unclean
        may_have = environment.may_have_posted(self._live.state, self._unacked.first)
        return unclean.position if unclean and may_have else 0

    @property
    def unrecorded(self) -> int:
        """The count of numbers beyond the frontier that an owner that vanished may have given."""
        beyond = self.posted_to - self._live.state.frontier.position
        return max(0, min(beyond, UNRECORDED_MAX))
