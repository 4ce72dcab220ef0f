"""The topology of an installation as data: names from its prefix, streams, buckets and consumers.

The configurations have the form of the JetStream API, since nats-py lacks some of its fields. Durations in
them are nanoseconds. `streams.installation.requirements` says which settings must hold and why, and
`streams.installation.setup` creates everything.
"""

from typing import Any

from msgspec import Struct

from actors.configuration.parsing import DOCUMENT_MAX
from streams.installation.actor_keys import ActorKeys
from streams.installation.timed_subjects import TimedSubjects

VERSION = 2
"""Version stamped on every stream; it rises if a node can no longer work with the streams of an older one.
Version 1 had durable consumers; only they knew how far events were routed."""

STAMP_VERSION = "angarium.topology"
STAMP_SHARDS = "angarium.shards"

CONSUMER_GONE_AFTER_S = 60.0
"""Time after which a consumer without a reader vanishes."""

ACK_WAIT_S = 86_400.0
"""Ack timeout of a consumer. Nothing relies on messages that come again."""

MAX_ACK_PENDING = 20_000

DUPLICATE_WINDOW_S = 120.0
RECEIVERS_HISTORY = 8
EXPIRY_MARKER_TTL_S = 60.0
"""Time for which a node's expired key stays visible."""

KIB = 1 << 10
GIB = 1 << 30
DAY_S = 86_400.0

JOURNAL_AGE_S = 3 * DAY_S
"""Longest absence of all nodes after which they still recover everything."""

DEAD_AGE_S = 30 * DAY_S
BYTES_DEFAULT = 4 * GIB
HEADER_ROOM = 8 * KIB
"""Bytes for headers in addition to the body. Each copy of an event gets as much again for added headers."""


class Installation(Struct, frozen=True, kw_only=True):
    """The settings that an operator chooses for an installation.

    - `prefix`: the beginning of all names and subjects.
    - `shards`: the number of shards; it cannot be changed later.
    - `max_body`: bytes of the largest event.
    - `max_bytes`: size of the events stream and of the deliveries stream, by default 4 GiB each; the journal
      gets half of it, dead letters and timed events a quarter each.
    - `max_age_s`: how long events and deliveries are kept; longer than any receiver's own limit.
    """

    prefix: str = "angarium"
    shards: int = 64
    replicas: int = 1
    max_body: int = 256 * KIB
    max_bytes: int | None = None
    max_age_s: float = 7 * DAY_S

    @property
    def names(self) -> "Names":
        return Names(self.prefix)


class Names(Struct, frozen=True):
    """Names of streams and subjects. A receiver is `<tenant>.<name>`; a bucket is named by its stream."""

    prefix: str = "angarium"

    @property
    def events(self) -> str:
        return f"{self.prefix.upper()}_EVENTS"

    @property
    def deliveries(self) -> str:
        return f"{self.prefix.upper()}_DELIVERIES"

    @property
    def journal(self) -> str:
        return f"{self.prefix.upper()}_JOURNAL"

    @property
    def dead_letters(self) -> str:
        return f"{self.prefix.upper()}_DEAD"

    @property
    def later(self) -> str:
        return f"{self.prefix.upper()}_LATER"

    @property
    def timed_subjects(self) -> TimedSubjects:
        """The subjects of timed events."""
        return TimedSubjects(self.prefix)

    @property
    def receivers(self) -> str:
        return f"KV_{self.prefix}_receivers"

    @property
    def actors(self) -> str:
        return f"KV_{self.prefix}_actors"

    @property
    def nodes(self) -> str:
        return f"KV_{self.prefix}_nodes"

    @property
    def tokens(self) -> str:
        return f"KV_{self.prefix}_tokens"

    @property
    def actor_keys(self) -> ActorKeys:
        """The keys of the bucket of the actors."""
        return ActorKeys(self.prefix)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that must not be recreated unnoticed.

        Positions in most of them are recorded elsewhere. Without the configurations, all receivers would
        count as removed, and their waiting events would be discarded.
        """
        return (self.events, self.deliveries, self.journal, self.receivers, self.actors)

    def shard_consumer(self, shard: int, epoch: int) -> str:
        """The name of a claim's first consumer of the deliveries."""
        return f"shard-{shard}-{epoch}"

    def route_consumer(self, partition: int, epoch: int) -> str:
        """The name of a claim's first consumer of the events."""
        return f"route-{partition}-{epoch}"

    def publish_event(self, tenant: str, type_: str) -> str:
        """The subject to publish an event to all receivers of a tenant that subscribe."""
        return f"{self.prefix}.events.{tenant}.{type_}"

    def publish_to(self, receiver: str) -> str:
        """The subject to publish an event to one receiver."""
        return f"{self.prefix}.deliver.{receiver}"

    def shard_and_receiver(self, delivery: str) -> tuple[int, str] | None:
        """The shard and the receiver of the subject of a stored delivery; None if it belongs to no shard.

        nats-server stores a message to a subject that contains a wildcard as it came, without a shard.
        """
        match delivery.removeprefix(f"{self.prefix}.deliver.").split("."):
            case [shard, tenant, name] if shard.isdecimal() and not has_wildcard(delivery):
                return int(shard), f"{tenant}.{name}"
        return None

    def partition_and_tenant(self, event: str) -> tuple[int, str] | None:
        """The partition and the tenant of the subject of a stored event; None if it is in no partition."""
        match event.removeprefix(f"{self.prefix}.events.").split("."):
            case [partition, tenant, _, *_] if partition.isdecimal():
                return int(partition), tenant
        return None

    def address_of_event(self, event: str) -> str:
        """`<tenant>.<type>` from the subject of an event that is in a partition."""
        return event.split(".", 3)[3]

    def receiver_of_delivery(self, delivery: str) -> str:
        """The receiver from the subject of a delivery that belongs to a shard."""
        return delivery.split(".", 3)[3]

    def shard_or_partition(self, stored: str) -> int:
        """The number of the shard of a delivery, or of the partition of an event, from its subject."""
        return int(stored.split(".", 3)[2])

    def published_to(self, stray: str) -> str:
        """The name that a producer published to, from the subject of a message in no shard and no partition.

        That is `<tenant>.<name>` of a delivery, `<tenant>.<type>` of an event.
        """
        return stray.split(".", 2)[2]

    def shard_of_flush(self, flush: str) -> int:
        """The shard from the subject of a message of the journal."""
        return int(flush.rpartition(".")[2])

    def receiver_of_letter(self, letter: str) -> str:
        """The receiver from the subject of a dead letter."""
        return letter.split(".", 2)[2]

    def receiver_of_configuration(self, key: str) -> str:
        """The receiver from the subject of a stored configuration."""
        return key.removeprefix(self.receiver(""))

    def node_of_heartbeat(self, key: str) -> str:
        """The node from the subject of its heartbeats."""
        return key.rpartition(".")[2]

    def id_of_token(self, key: str) -> str:
        """The id from the subject of a token, or from that of its last use."""
        return key.removeprefix(self.token("")).removesuffix(".used")

    def verb_and_receiver(self, request: str) -> tuple[str, str]:
        """The verb and the receiver from the subject of a control request."""
        _, _, verb, receiver = request.split(".", 3)
        return verb, receiver

    def event(self, partition: int, tenant: str, type_: str) -> str:
        """The subject under which an event is stored."""
        return f"{self.prefix}.events.{partition}.{tenant}.{type_}"

    def delivery(self, shard: int, receiver: str) -> str:
        """The subject under which a delivery is stored."""
        return f"{self.prefix}.deliver.{shard}.{receiver}"

    def deliveries_to(self, receiver: str) -> str:
        """The subjects of all deliveries to a receiver, in any shard."""
        return f"{self.prefix}.deliver.*.{receiver}"

    def deliveries_to_all_of(self, tenant: str) -> str:
        """The subjects of all deliveries to receivers of a tenant."""
        return self.deliveries_to(f"{tenant}.*")

    @property
    def stray_deliveries(self) -> str:
        """The subjects of all deliveries that belong to no shard."""
        return self.publish_to("*.*")

    def deliveries_of(self, shard: int) -> str:
        """The subjects of all deliveries of a shard."""
        return f"{self.prefix}.deliver.{shard}.*.*"

    def events_of(self, partition: int) -> str:
        """The subjects of all events of a partition."""
        return f"{self.prefix}.events.{partition}.>"

    def events_for(self, tenant: str) -> str:
        """The subjects of all events of a tenant, in any partition."""
        return f"{self.prefix}.events.*.{tenant}.>"

    def journal_of(self, shard: int) -> str:
        """The subject of the journal of a shard."""
        return f"{self.prefix}.journal.{shard}"

    def dead_of(self, tenant: str) -> str:
        """The subjects of all dead letters of a tenant."""
        return self.dead(f"{tenant}.*")

    def dead(self, receiver: str) -> str:
        """The subject of the dead letters of a receiver."""
        return f"{self.prefix}.dead.{receiver}"

    def tenant_of_letter(self, letter: str) -> str:
        """The tenant of the subject of a dead letter."""
        return letter.removeprefix(self.dead("")).split(".")[0]

    def receiver(self, receiver: str) -> str:
        """The key of a receiver's configuration."""
        return f"$KV.{self.prefix}_receivers.{receiver}"

    def node(self, node: str) -> str:
        """The key of a node's heartbeats."""
        return f"$KV.{self.prefix}_nodes.{node}"

    def token(self, token: str) -> str:
        """The key of a token of the HTTP API."""
        return f"$KV.{self.prefix}_tokens.{token}"

    def token_use(self, token: str) -> str:
        """The key that says when a token was last used; it is separate so that the token is not rewritten."""
        return f"$KV.{self.prefix}_tokens.{token}.used"

    def control(self, verb: str, tenant: str, name: str) -> str:
        """The subject of requests to the node that runs a receiver."""
        return f"{self.prefix}.ctl.{verb}.{tenant}.{name}"


def has_wildcard(subject: str) -> bool:
    """True if a request that names the subject could mean other subjects, too."""
    return not {"*", ">"}.isdisjoint(subject.split("."))


def streams(installation: Installation) -> list[dict[str, Any]]:
    """The five streams and four buckets."""
    return [
        _events(installation),
        _deliveries(installation),
        _journal(installation),
        _dead_letters(installation),
        # Some history, since after an invalid configuration the last valid one stays in force, even after
        # a restart. The server refuses a configuration that is too large, so no node has to read it.
        _bucket(
            installation,
            installation.names.receivers,
            history=RECEIVERS_HISTORY,
            allow_direct=True,
            max_msg_size=DOCUMENT_MAX + HEADER_ROOM,
        ),
        # Snapshots decide the state, so no replica may answer instead of the leader.
        _bucket(installation, installation.names.actors, allow_direct=False, allow_atomic=True),
        _bucket(
            installation,
            installation.names.nodes,
            allow_direct=True,
            allow_msg_ttl=True,
            subject_delete_marker_ttl=_nanoseconds(EXPIRY_MARKER_TTL_S),
        ),
        _bucket(installation, installation.names.tokens, allow_direct=True),
        _later(installation),
    ]


def consumer_for_claim(name: str, subjects: str, start: int) -> dict[str, Any]:
    """A consumer for one claim, from the position `start` on.

    In memory, with one replica and one ack for everything up to a position it costs the server a third of a
    durable one (docs/decisions/a-consumer-for-each-claim.md).
    """
    return {
        "name": name,
        "filter_subject": subjects,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": start,
        "ack_policy": "all",
        "ack_wait": _nanoseconds(ACK_WAIT_S),
        "max_deliver": -1,
        "max_ack_pending": MAX_ACK_PENDING,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _nanoseconds(CONSUMER_GONE_AFTER_S),
    }


def _events(installation: Installation) -> dict[str, Any]:
    subjects = f"{installation.prefix}.events.*.>"
    partition = f"{{{{partition({installation.shards},1)}}}}"
    return _stream(
        installation,
        installation.names.events,
        subjects,
        subject_transform={
            "src": subjects,
            "dest": f"{installation.prefix}.events.{partition}.{{{{wildcard(1)}}}}.>",
        },
        max_age=_nanoseconds(installation.max_age_s),
        max_bytes=_room(installation),
        max_msg_size=installation.max_body + HEADER_ROOM,
    )


def _deliveries(installation: Installation) -> dict[str, Any]:
    subjects = f"{installation.prefix}.deliver.*.*"
    shard = f"{{{{partition({installation.shards},1,2)}}}}"
    return _stream(
        installation,
        installation.names.deliveries,
        subjects,
        subject_transform={
            "src": subjects,
            "dest": f"{installation.prefix}.deliver.{shard}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}",
        },
        max_age=_nanoseconds(installation.max_age_s),
        max_bytes=_room(installation),
        max_msg_size=installation.max_body + 2 * HEADER_ROOM,
    )


def _journal(installation: Installation) -> dict[str, Any]:
    return _stream(
        installation,
        installation.names.journal,
        f"{installation.prefix}.journal.*",
        max_age=_nanoseconds(JOURNAL_AGE_S),
        max_bytes=_room(installation) // 2,
        compression="s2",
    )


def _dead_letters(installation: Installation) -> dict[str, Any]:
    return _stream(
        installation,
        installation.names.dead_letters,
        f"{installation.prefix}.dead.*.*",
        max_age=_nanoseconds(DEAD_AGE_S),
        max_bytes=_room(installation) // 4,
        max_msg_size=installation.max_body + 3 * HEADER_ROOM,
    )


def _later(installation: Installation) -> dict[str, Any]:
    return _stream(
        installation,
        installation.names.later,
        installation.names.timed_subjects.pattern,
        max_msgs_per_subject=1,
        max_bytes=_room(installation) // 4,
        # As in the events: what fits here fits there again when it is due, with fewer headers.
        max_msg_size=installation.max_body + HEADER_ROOM,
        allow_msg_ttl=True,
    )


def _stream(installation: Installation, name: str, subjects: str, **more: Any) -> dict[str, Any]:
    """A stream limited by age and size, not by acks: waiting events are read again. When full, it refuses."""
    return {
        "name": name,
        "subjects": [subjects],
        "retention": "limits",
        "discard": "new",
        "storage": "file",
        "num_replicas": installation.replicas,
        "duplicate_window": _nanoseconds(DUPLICATE_WINDOW_S),
        "allow_direct": True,
        "metadata": _stamp(installation),
        **more,
    }


def _bucket(installation: Installation, stream: str, *, history: int = 1, **more: Any) -> dict[str, Any]:
    """A bucket as other clients create one (ADR-8); `history` is how many values of a key are kept."""
    return _stream(
        installation,
        stream,
        f"$KV.{stream.removeprefix('KV_')}.>",
        max_msgs_per_subject=history,
        allow_rollup_hdrs=True,
        deny_delete=True,
        **more,
    )


def _stamp(installation: Installation) -> dict[str, str]:
    return {STAMP_VERSION: str(VERSION), STAMP_SHARDS: str(installation.shards)}


def _room(installation: Installation) -> int:
    return BYTES_DEFAULT if installation.max_bytes is None else installation.max_bytes


def _nanoseconds(duration_s: float) -> int:
    return round(duration_s * 1_000_000_000)
