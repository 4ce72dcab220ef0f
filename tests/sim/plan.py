"""The plan of a run: drawn from its seed, or fixed by a scenario."""

from msgspec import Struct

from angarium.node.early_start import CONFIGURATIONS_PATIENCE_S
from streams.buckets import follower
from streams.journal.parked_receivers import PART_BYTES
from streams.journal.snapshots import BATCH_MESSAGES_MAX
from streams.reading.pull_room import REQUEST_BYTES_MAX
from streams.routing import ahead_reader, router, tenants
from streams.routing.selection import receiver_selection
from tests.sim.world.faults import CALM, Faults, draw, with_deposed
from tests.sim.world.world import World


class Plan(Struct, frozen=True, kw_only=True):
    """`hot`: one receiver, many events, a configuration that changes all the time. `duration_s`: how long it
    goes wrong. `snapshot_every_s`, `idle_s` and `maintenance_every_s` take the place of the product's own
    intervals, `pause_at` that of its limit. `room`: bytes that the deliveries may take, where it is not what
    `setup` gives them. `saturated`: how probably a node has no time to spare, whenever it is asked. `batch`:
    messages of one batch of snapshots, `part_bytes`: of one part of the list of parked receivers.
    `tenant_events`: how many of a tenant a router has in memory, `tenant_copies`: how many are unconfirmed;
    `tenants_parked`: how many of a partition; `waiting_s`: how long an event may keep `routed` back.
    `pull_batch`: how many events a router requests at a time; `behind`: how many are left to be handed out
    when it reads ahead of a flood; `requests_late_s`: how late such a request may arrive. `replay_keep_s`:
    how long what is settled is kept. `events_room`: as `room`, of the events. `event_bytes`: memory of a
    router. `rate`: how many events a second of the tenant acme are routed; 0: without a limit; `limited`:
    other tenants that have it, too; `weight`: of acme. `quota`: bytes that each tenant may have waiting for
    its receivers, and to be routed; 0: without a limit. `patience_s`: how long shards wait for all
    configurations, of which `configurations_read` are read at a time. `strays`: how probably what is
    published to all belongs to no shard; `filter_steps`: how many a tenant's filters
    may take in one turn; `flood`: how probably an event is of the first tenant, or for the
    first receiver, though there are others; then many are published at a time."""

    receivers: tuple[str, ...] = ("acme.r0",)
    shards: int = 1
    ttl_s: float = 2.0
    clustered: bool = False
    max_payload: int = 1 << 20
    faults: Faults = CALM
    hot: bool = False
    duration_s: float = 10.0
    snapshot_every_s: float = 5.0
    idle_s: float = 60.0
    maintenance_every_s: float = 60.0
    room: int = 0
    pause_at: int = 64
    saturated: float = 0.0
    batch: int = BATCH_MESSAGES_MAX
    part_bytes: int = PART_BYTES
    tenant_events: int = tenants.EVENTS_MAX
    tenant_copies: int = tenants.UNCONFIRMED_COPIES_MAX
    tenants_parked: int = tenants.PARKED_MAX
    waiting_s: float = router.WAITING_MAX_S
    pull_batch: int = router.PULL_BATCH
    behind: int = ahead_reader.BEHIND_MIN
    requests_late_s: float = 0.0
    replay_keep_s: float = 0.0
    events_room: int = 0
    event_bytes: int = router.EVENT_BYTES_MAX
    rate: float = 0.0
    limited: tuple[str, ...] = ()
    weight: int = 1
    quota: int = 0
    patience_s: float = CONFIGURATIONS_PATIENCE_S
    configurations_read: int = follower.READ_MESSAGES_MAX
    strays: float = 0.0
    flood: float = 0.0
    filter_steps: int = receiver_selection.STEPS_A_TURN

    @property
    def request_bytes(self) -> int:
        """The limit of a request in bytes; with 200, some messages have to be requested alone."""
        return REQUEST_BYTES_MAX if self.pull_batch == router.PULL_BATCH else 200


def drawn(world: World) -> Plan:
    """Swarm testing: each seed likes and dislikes other things."""
    chance = world.random("plan")
    hot, clustered = chance.random() < 0.3, chance.random() < 0.3
    floods, uneven = world.random("floods"), world.random("tenants")
    second = floods.choice(("acme", "umbra"))
    patience_s = world.random("configurations").choice((CONFIGURATIONS_PATIENCE_S, 0.0))
    count = 1 if hot else chance.choice((1, 1, 2, 3, 5))
    return Plan(
        receivers=tuple(f"{second if number % 2 else 'acme'}.r{number}" for number in range(count)),
        shards=1 if hot else chance.choice((1, 1, 1, 2, 3)),
        ttl_s=chance.choice((2.0, 2.0, 3.0, 5.0)),
        clustered=clustered,
        max_payload=chance.choice((32 << 10, 1 << 20)),
        faults=with_deposed(draw(chance, clustered=clustered), world.random("deposed"), clustered),
        hot=hot,
        duration_s=chance.choice((5.0, 10.0, 10.0, 20.0, 60.0)) * chance.uniform(0.5, 1.0),
        snapshot_every_s=chance.choice((0.3, 2.0, 5.0)),
        idle_s=chance.choice((0.5, 3.0, 60.0)),
        maintenance_every_s=chance.choice((0.3, 1.0, 3.0)),
        room=chance.choice((0, 0, 0, 2 << 10, 8 << 10)),
        pause_at=chance.choice((2, 8, 64)),
        saturated=chance.choice((0.0, 0.5, 1.0)),
        batch=chance.choice((2, 3, BATCH_MESSAGES_MAX)),
        part_bytes=chance.choice((1, 60, PART_BYTES)),
        tenant_events=floods.choice((1, 3, 8, tenants.EVENTS_MAX)),
        tenant_copies=floods.choice((1, 4, tenants.UNCONFIRMED_COPIES_MAX)),
        tenants_parked=floods.choice((1, tenants.PARKED_MAX)),
        waiting_s=floods.choice((0.05, 0.5, router.WAITING_MAX_S)),
        pull_batch=floods.choice((2, 4, router.PULL_BATCH)),
        behind=floods.choice((0, 4, ahead_reader.BEHIND_MIN)),
        requests_late_s=floods.choice((0.0, 0.05, 0.5)),
        events_room=floods.choice((0, 0, 2 << 10, 8 << 10)),
        event_bytes=floods.choice((1 << 10, router.EVENT_BYTES_MAX)),
        rate=floods.choice((0.0, 0.0, 2.0, 20.0)),
        weight=uneven.choice((1, 1, 3, 100)),
        quota=world.random("quota").choice((0, 0, 0, 1 << 10, 4 << 10)),
        patience_s=patience_s,
        configurations_read=1 if patience_s == 0.0 else follower.READ_MESSAGES_MAX,
        strays=uneven.choice((0.0, 0.0, 0.05)),
        flood=uneven.choice((0.0, 0.0, 0.95)),
        filter_steps=world.random("filters").choice((1, receiver_selection.STEPS_A_TURN)),
    )
