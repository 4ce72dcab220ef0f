"""The installation as documented: its names, its subjects, and figures that fit one another."""

from pathlib import Path

import pytest

from actors.configuration.parsing import DOCUMENT_MAX
from streams.installation.topology import JOURNAL_AGE_S, Installation, Names, consumer_for_claim, streams

SECOND = 1_000_000_000
OPERATING = Path(__file__).parents[3] / "docs" / "operating.md"


def by_name(installation: Installation) -> dict[str, dict[str, object]]:
    return {config["name"]: config for config in streams(installation)}


def test_the_names_of_the_contract() -> None:
    names = Names()
    assert (names.events, names.deliveries) == ("ANGARIUM_EVENTS", "ANGARIUM_DELIVERIES")
    assert (names.journal, names.dead_letters) == ("ANGARIUM_JOURNAL", "ANGARIUM_DEAD")
    assert names.later == "ANGARIUM_LATER"
    assert names.receivers == "KV_angarium_receivers"
    assert names.actors == "KV_angarium_actors"
    assert names.nodes == "KV_angarium_nodes"
    assert names.tokens == "KV_angarium_tokens"
    assert names.publish_event("acme", "order.created") == "angarium.events.acme.order.created"
    assert names.publish_to("acme.billing") == "angarium.deliver.acme.billing"
    assert names.event(3, "acme", "order.created") == "angarium.events.3.acme.order.created"
    assert names.delivery(54, "acme.billing") == "angarium.deliver.54.acme.billing"
    assert names.journal_of(54) == "angarium.journal.54"
    assert names.dead("acme.billing") == "angarium.dead.acme.billing"
    assert names.receiver("acme.billing") == "$KV.angarium_receivers.acme.billing"
    assert names.actor_keys.actor(54, "acme.billing") == "$KV.angarium_actors.54.acme.billing"
    assert names.actor_keys.owner(54) == "$KV.angarium_actors.54._owner"
    assert names.actor_keys.checkpoint(54) == "$KV.angarium_actors.54._checkpoint"
    assert names.node("n1") == "$KV.angarium_nodes.n1"
    assert names.token("k3f") == "$KV.angarium_tokens.k3f"
    assert names.token_use("k3f") == "$KV.angarium_tokens.k3f.used"
    assert names.control("inspect", "acme", "billing") == "angarium.ctl.inspect.acme.billing"
    assert (names.shard_consumer(7, 31), names.route_consumer(7, 31)) == ("shard-7-31", "route-7-31")


@pytest.mark.parametrize("names", [Names(), Names("other")])
def test_a_subject_contains_the_names_that_made_it(names: Names) -> None:
    keys = names.actor_keys
    delivery, event = names.delivery(54, "acme.billing"), names.event(3, "acme", "order.created")
    assert names.shard_and_receiver(delivery) == (54, "acme.billing")
    assert names.receiver_of_delivery(delivery) == "acme.billing"
    assert names.partition_and_tenant(event) == (3, "acme")
    assert names.address_of_event(event) == "acme.order.created"
    assert (names.shard_or_partition(delivery), names.shard_or_partition(event)) == (54, 3)
    assert names.shard_of_flush(names.journal_of(54)) == 54
    assert names.receiver_of_letter(names.dead("acme.billing")) == "acme.billing"
    assert names.receiver_of_configuration(names.receiver("acme.billing")) == "acme.billing"
    assert names.node_of_heartbeat(names.node("n1")) == "n1"
    assert names.id_of_token(names.token("k3f")) == names.id_of_token(names.token_use("k3f")) == "k3f"
    assert names.verb_and_receiver(names.control("skip", "acme", "billing")) == ("skip", "acme.billing")
    assert keys.shard_and_actor(keys.actor(54, "acme.billing")) == (54, "acme.billing")
    assert keys.receiver_of_replay(keys.replay("acme.billing")) == "acme.billing"
    assert keys.tenant_of_redrive_job(keys.redrive_job("acme")) == "acme"
    assert keys.position_of_redacted(keys.redacted_flush(17)) == 17


def test_a_stray_is_in_no_shard_and_no_partition() -> None:
    """nats-server stores a message to a subject with a wildcard as it came."""
    names = Names()
    delivery, event = names.publish_to("acme.*"), names.publish_event("acme", "order.*")
    assert (names.shard_and_receiver(delivery), names.published_to(delivery)) == (None, "acme.*")
    assert (names.partition_and_tenant(event), names.published_to(event)) == (None, "acme.order.*")


def test_the_key_of_a_snapshot_is_told_from_the_other_keys_of_its_shard() -> None:
    keys = Names().actor_keys
    others = [keys.owner(54), keys.checkpoint(54), keys.parked_receivers(54, 1), keys.replay("acme.billing")]
    assert [keys.shard_and_actor(each) for each in others] == [None] * len(others)
    assert keys.receiver_of_replay(keys.redrive_job("acme")) is None


def test_another_prefix_shares_nothing() -> None:
    ours, theirs = by_name(Installation()), by_name(Installation(prefix="foo"))
    assert next(iter(theirs)) == "FOO_EVENTS"
    assert not ours.keys() & theirs.keys()
    assert not {str(config["subjects"]) for config in ours.values()} & {
        str(config["subjects"]) for config in theirs.values()
    }


def test_nothing_accepted_is_dropped_for_something_new() -> None:
    for config in by_name(Installation()).values():
        assert config["discard"] == "new"
        assert config["retention"] == "limits"
        assert config["storage"] == "file"


def test_only_the_leader_serves_snapshots() -> None:
    served = {name for name, config in by_name(Installation()).items() if config["allow_direct"]}
    assert by_name(Installation()).keys() - served == {"KV_angarium_actors"}


def test_a_copy_fits_where_the_original_did() -> None:
    configs = by_name(Installation(max_body=1000))
    sizes = [configs[f"ANGARIUM_{name}"]["max_msg_size"] for name in ("EVENTS", "DELIVERIES", "DEAD")]
    assert sizes == [1000 + 8192, 1000 + 2 * 8192, 1000 + 3 * 8192]
    assert "max_msg_size" not in configs["ANGARIUM_JOURNAL"]


def test_the_bucket_takes_no_larger_configuration_than_a_node_reads() -> None:
    assert by_name(Installation())["KV_angarium_receivers"]["max_msg_size"] == DOCUMENT_MAX + 8192


def test_an_operator_who_adds_replicas_is_told_how_many_streams_there_are() -> None:
    names = [config["name"] for config in streams(Installation())]
    assert (len(names), sum(name.startswith("KV_") for name in names)) == (9, 4)
    assert "on all nine streams, including those of the four buckets" in OPERATING.read_text()


def test_the_room_of_each_stream() -> None:
    configs = by_name(Installation(max_bytes=4096))
    rooms = [
        configs[f"ANGARIUM_{name}"]["max_bytes"]
        for name in ("EVENTS", "DELIVERIES", "JOURNAL", "DEAD", "LATER")
    ]
    assert rooms == [4096, 4096, 2048, 1024, 1024]
    assert by_name(Installation())["ANGARIUM_EVENTS"]["max_bytes"] == 4 << 30


def test_the_journal_is_compressed_replicated_and_kept_for_its_age() -> None:
    journal = by_name(Installation(replicas=3))["ANGARIUM_JOURNAL"]
    assert journal["compression"] == "s2"
    assert journal["max_age"] == JOURNAL_AGE_S * SECOND
    assert journal["num_replicas"] == 3


def test_a_consumer_is_in_the_memory_of_one_server_and_vanishes_by_itself() -> None:
    config = consumer_for_claim("shard-7-31", "angarium.deliver.7.*.*", 12)
    assert "durable_name" not in config
    assert (config["mem_storage"], config["num_replicas"]) == (True, 1)
    assert (config["ack_policy"], config["max_deliver"]) == ("all", -1)
    assert (config["deliver_policy"], config["opt_start_seq"]) == ("by_start_sequence", 12)
    assert config["inactive_threshold"] == 60 * SECOND
