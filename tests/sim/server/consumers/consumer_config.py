"""A consumer's configuration as nats-server completes it, and what either server refuses."""

from typing import Any

from tests.sim.server import refusals
from tests.sim.server.refusals import Refused

SECOND = 1_000_000_000

Config = dict[str, Any]

_DEFAULTS: Config = {
    "deliver_policy": "all",
    "ack_policy": "explicit",
    "ack_wait": 30 * SECOND,
    "max_deliver": -1,
    "replay_policy": "instant",
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "num_replicas": 0,
}
_OPTIONAL = {
    "description",
    "filter_subject",
    "inactive_threshold",
    "mem_storage",
    "opt_start_seq",
}
_SERVED = {"max_deliver": -1, "replay_policy": "instant"}


def completed(name: str, config: Config) -> Config:
    """The configuration with its defaults. Raises `Refused`, also for what is only unknown here."""
    known = _DEFAULTS.keys() | _OPTIONAL | {"name", "durable_name", "metadata"}
    if unknown := config.keys() - known:
        raise Refused(refusals.not_supported(f"the consumer's {sorted(unknown)}"))
    if name not in (config.get("durable_name", name), config.get("name", name)):
        raise Refused(refusals.CONSUMER_NAME_MISMATCH)
    given = {key: value for key, value in config.items() if value}
    full = {"name": name} | _DEFAULTS | given
    full["metadata"] = {"_nats.level": "5", "_nats.ver": "2.15.1"} | full.get("metadata", {})
    if full["deliver_policy"] not in ("all", "new", "by_start_sequence"):
        raise Refused(refusals.not_supported(f"the deliver policy {full['deliver_policy']}"))
    if full.get("mem_storage", False) != ("durable_name" not in config):
        raise Refused(refusals.not_supported("a durable consumer in memory, or another one on disk"))
    return full


def is_served(config: Config) -> bool:
    """True if such a consumer can be read from here; others can only be created and listed."""
    return config["ack_policy"] in ("all", "explicit") and _SERVED.items() <= config.items()
