"""A stream's configuration as nats-server completes it, and what it refuses."""

import re
from typing import Any

from tests.sim.server import refusals
from tests.sim.server.refusals import Refused
from tests.sim.server.subjects import TransformError, is_valid, overlap, transform

SECOND = 1_000_000_000

Config = dict[str, Any]

_DEFAULTS: Config = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 0,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "allow_msg_ttl": False,
}
_OPTIONAL = {
    "description",
    "subject_transform",
    "allow_atomic",
    "discard_new_per_subject",
    "subject_delete_marker_ttl",
    "placement",
}
_UNSUPPORTED = {"mirror", "sources", "republish", "allow_msg_counter", "allow_msg_schedules", "allow_batched"}
_FIXED = {
    "deny_delete": "stream configuration update can not cancel deny message deletes",
    "deny_purge": "stream configuration update can not cancel deny purge",
    "allow_msg_ttl": "message TTL status can not be disabled",
}


def completed(config: Config, clustered: bool) -> Config:
    """The configuration with its defaults. Raises `Refused`."""
    if unsupported := _UNSUPPORTED & config.keys():
        raise Refused(refusals.not_supported(sorted(unsupported)))
    known = _DEFAULTS.keys() | _OPTIONAL | {"name", "subjects", "metadata"}
    for name in config.keys() - known:
        raise Refused(refusals.invalid_json(f'json: unknown field "{name}"'))
    given = {name: value for name, value in config.items() if name in _DEFAULTS or value}
    full = {"name": config["name"], "subjects": [config["name"]]} | _DEFAULTS | given
    for name in ("max_consumers", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size"):
        full[name] = full[name] or -1
    if not full["duplicate_window"]:
        full["duplicate_window"] = min(120 * SECOND, full["max_age"] or 120 * SECOND)
    if full.get("subject_delete_marker_ttl"):
        full |= {"allow_msg_ttl": True, "allow_rollup_hdrs": True}
    full["metadata"] = {"_nats.level": "5", "_nats.ver": "2.15.1"} | full.get("metadata", {})
    _check(full, clustered)
    return full


def _check(config: Config, clustered: bool) -> None:
    if config["num_replicas"] > 1 and not clustered:
        raise Refused(refusals.NO_REPLICAS)
    if fault := _fault(config):
        raise Refused(refusals.invalid_stream(fault))
    if change := config.get("subject_transform"):
        try:
            transform(change["src"], change["dest"])
        except TransformError as error:
            raise Refused(refusals.invalid_transform(error)) from error


def _fault(config: Config) -> str | None:
    subjects, max_age = config["subjects"], config["max_age"]
    if not all(map(is_valid, subjects)):
        return "invalid subject"
    for place, one in enumerate(subjects):
        for other in subjects[place + 1 :]:
            if overlap(one, other):
                return f'subject "{one}" overlaps with "{other}"'
    if config.get("discard_new_per_subject"):
        if config["discard"] != "new":
            return "discard new per subject requires discard new policy to be set"
        if config["max_msgs_per_subject"] <= 0:
            return "discard new per subject requires max msgs per subject > 0"
    if 0 < max_age < SECOND // 10:
        return "max age needs to be >= 100ms"
    if config["duplicate_window"] < 0:
        return "duplicates window can not be negative"
    if 0 < max_age < config["duplicate_window"]:
        return "duplicates window can not be larger then max age"
    if 0 < config.get("subject_delete_marker_ttl", 0) < SECOND:
        return "subject delete marker TTL must be at least 1 second"
    return None


def check_update(old: Config, new: Config) -> None:
    """Checks a change of the configuration. Raises `Refused`."""
    if old["storage"] != new["storage"]:
        raise Refused(refusals.invalid_stream("stream configuration update can not change storage type"))
    if old["retention"] != new["retention"]:
        words = "stream configuration update can not change retention policy to/from workqueue"
        raise Refused(refusals.invalid_stream(words))
    for name, words in _FIXED.items():
        if old[name] and not new[name]:
            raise Refused(refusals.invalid_stream(words))


_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}


def ttl_s(text: str) -> int | None:
    """The seconds of a `Nats-TTL`, 0 for one without end; None if it is invalid."""
    if text == "never":
        return 0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(|s|m|h|ms)", text)
    seconds = float(found[1]) * _UNITS_S[found[2]] if found else 0.0
    return int(seconds) if seconds >= 1 else None
