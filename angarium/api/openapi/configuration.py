"""The schemas of a receiver's configuration, with the bounds that `actors.configuration` holds them to.

There are three: one to put, one to patch, and one that is shown, which an older or newer version may have
stored.
"""

from typing import Any

import msgspec

from actors.configuration.filters.compiling import EXPRESSION_BYTES_MAX
from actors.configuration.policy import RATES_MAX, Policy
from actors.configuration.problems import (
    HEADERS_MAX,
    PATTERN_LENGTH_MAX,
    PATTERNS_MAX,
    REGIONS_MAX,
    SECRETS_MAX,
)
from actors.configuration.transform import POINTER_BYTES_MAX, POINTERS_MAX

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
CONFIGURATION, PATCH, SHOWN = "ReceiverConfiguration", "ReceiverPatch", "ReceiverConfigurationShown"
MASK = "…"
"""The text in place of a secret; a client that sends it back leaves the stored value as it is."""

DESCRIPTIONS = {
    "url": "The URL to send to: https, or http if the nodes allow it; without user or password.",
    "events": "The types that it subscribes to, as NATS wildcards: order.*, order.>.",
    "secrets": "Newest first; each one signs. whsec_ (HMAC-SHA256) or whs512_ (HMAC-SHA512) and the base64 "
    "of 24 to 64 bytes, or whsk_ (ed25519) and the base64 of 32 or 64. A stored one is given again as it is "
    f"shown: {MASK}, or whpk_ and the public key of a whsk_ secret.",
    "old_secrets": "Earlier secrets that also sign, each until its time.",
    "order": "strict: an event starts when the previous one is settled. relaxed: several at a time.",
    "rate": 'The rate limit: "10/second", an object, or a list of such limits, which all hold. Null: the '
    "default of the nodes.",
    "concurrency": "The highest number of attempts in flight, in relaxed order.",
    "batch": "Send up to so many events in one POST, in an envelope. Null: one event in each.",
    "BatchLimits.max_events": "The highest number of events in one POST.",
    "BatchLimits.max_bytes": "The highest sum of their bodies, as published; a larger event goes alone.",
    "BatchLimits.linger_s": "How long the oldest of them waits for more; a batch that is full does not wait.",
    "timeout_s": "The time limit of an attempt.",
    "retry": "The rules for retrying a failed delivery, and for giving it up.",
    "offline": "The times without a success after which it is offline, and disabled.",
    "dedup_window": "The number of event ids that are remembered, to drop duplicates.",
    "backlog_max": "If more events wait, the oldest become dead letters.",
    "headers": f"Headers that each attempt has; the value {MASK} keeps the stored one.",
    "format": "raw: the body as published. The others: a body, or headers, that also tell what the event is.",
    "proxy": "The profile of the nodes for the proxy; default: the one of that name, if any. Null: none.",
    "tls": "The profile of the nodes for client certificate and authorities. Null: none.",
    "filter": "Only events with a body for which this JMESPath is true. Null: all that it subscribes to.",
    "region": "The regions whose events it gets, with those that name none; one label stands for a list of "
    "one. Empty or null: all.",
    "adaptive": "How its pace adapts to what it can take; it never exceeds its rate.",
    "Adaptive.headers": "The limits that its answers tell in headers count.",
    "Adaptive.after_429": "Each 429 halves the rate, which grows back by a tenth of the limit in 10 s.",
    "Adaptive.concurrency": "In relaxed order, refusals halve the number of attempts in flight.",
    "Adaptive.smart": "The rate follows refusals and latencies.",
    "Adaptive.rate_min": "The lowest learnt rate, in attempts per second.",
    "Adaptive.rate_max": "The highest rate of `smart`, in attempts per second. Null: the rate itself.",
    "paused": "True: no events are sent; they wait.",
    "alerts": "The limits at which alerts are raised; others are its tenant's, or those of the nodes.",
    "Rate.limit": "Attempts per period; a fraction is allowed.",
    "Rate.per": "The period.",
    "Rate.burst": "Attempts that may start at once; null: one second's worth, rounded up, and in a list at "
    "least a tenth of the limit.",
    "Rate.margin": "The share of limit and burst that is used.",
    "Retry.base_s": "The longest delay before the first retry; it doubles with each attempt.",
    "Retry.cap_s": "The longest delay before any retry.",
    "Retry.max_age_s": "Older events become dead letters.",
    "Retry.max_attempts": "Attempts at an event; 0: as many as fit into max_age_s, without throttled ones.",
    "Retry.rejected_attempts": "Attempts at an event that the receiver rejects.",
    "Offline.after_s": "Time without a success after which the receiver is offline.",
    "Offline.ping": "While it is offline, it gets pings in place of events; the first 2xx ends that.",
    "Offline.disable_after_s": "Time without a success after which the receiver is disabled.",
    "AlertSettings.failing_after_s": "Time without a success after which it is failing.",
    "AlertSettings.behind_percent": "The part of backlog_max from which on it is behind.",
    "AlertSettings.behind_after_s": "The age of its oldest event from which on it is behind.",
    "AlertSettings.dead_letters_quiet_s": "Time without another dead letter that ends the alert about them.",
    "AlertSettings.interval_s": "Time from one alert to the next of the same kind, at least.",
    "handshake": "The proof that the receiver gives before it gets events, and after a new URL or secret: "
    "hmac needs a secret that it has, cloudevents its consent to an OPTIONS request.",
    "signature": "One more header, as the sender before Angarium signed. Null: none.",
    "CustomSignature.header": "The name of the header.",
    "CustomSignature.algorithm": "The hash of the HMAC.",
    "CustomSignature.encoding": "How {hmac} is written.",
    "CustomSignature.content": "What is signed, with the placeholders {body}, {timestamp}, {id} and {type}.",
    "CustomSignature.value": "The header's value, with the placeholders {hmac}, {timestamp} and {id}.",
    "CustomSignature.secret": f"The key, as text, or {MASK}. Null: the key of the newest of `secrets`.",
    "CustomSignature.timestamp_header": "A second header, with the timestamp alone. Null: none.",
    "transform": "The parts of a JSON body that it gets, by JSON pointers in which * stands for every "
    "member or element. Null: all of it.",
    "Transform.keep": "Only these places stay. Null: all stay.",
    "Transform.drop": "These places go.",
    "Transform.pseudonymize": "The values at these places are replaced by pseudonyms.",
    "pseudonym_key": f"The key of the pseudonyms: psk_ and the base64 of 24 to 64 bytes, or {MASK}. It is "
    "made when it is first needed, and stays.",
    "OldSecret.secret": "A secret, as in `secrets`.",
    "OldSecret.until": "The time until which it signs.",
}
"""Each member by its name, that of a nested object with the object's."""
_RATE_TEXT = {
    "type": "string",
    "pattern": r"^[0-9]{1,30}(\.[0-9]{1,30})?/(s|sec|second|m|min|minute|h|hour)$",
}
_BASE64 = "[A-Za-z0-9+/]"
_SECRET = {
    "type": "string",
    "pattern": f"^((whsec|whs512)_{_BASE64}{{32,86}}={{0,2}}|(whsk|whpk)_{_BASE64}{{43,86}}={{0,2}}|{MASK})$",
}
_NULL = {"type": "null"}
_OBJECTS = (
    "Rate", "BatchLimits", "Retry", "Offline", "Adaptive", "AlertSettings", "OldSecret", "CustomSignature",
    "Transform",
)  # fmt: skip
_KEY_PATTERN = f"^(psk_{_BASE64}{{32,86}}={{0,2}}|{MASK})$"
_POINTER = {"type": "string", "pattern": "^/", "maxLength": POINTER_BYTES_MAX}


def configuration_schemas() -> dict[str, Schema]:
    """The schemas by their names, those of nested objects included."""
    _, found = msgspec.json.schema_components((Policy,), ref_template=REFERENCE)
    members = found.pop("Policy")["properties"]
    for name in _OBJECTS:
        found[name]["additionalProperties"] = False
        _describe(found[name]["properties"], f"{name}.")
    found["BatchLimits"]["description"] = "The limits of one POST that has several events."
    found["CustomSignature"]["description"] = "A header in the receiver's own convention."
    found["OldSecret"]["description"] = "An earlier secret that also signs, until a given time."
    found["OldSecret"]["properties"]["secret"] |= _SECRET
    found["Transform"]["description"] = "The shape of each body: first keep, then drop, then pseudonymize."
    lists = found["Transform"]["properties"]
    for each in (lists["keep"]["anyOf"][0], lists["drop"], lists["pseudonymize"]):
        each |= {"items": _POINTER, "maxItems": POINTERS_MAX}
    members["pseudonym_key"]["anyOf"][0]["pattern"] = _KEY_PATTERN
    _describe(members, "")
    rate = {"anyOf": [_RATE_TEXT, members["rate"]["items"]]}
    rates = {"type": "array", "items": rate, "minItems": 1, "maxItems": RATES_MAX}
    members["rate"] = {
        "description": members["rate"]["description"], "anyOf": [*rate["anyOf"], rates, _NULL],
    }  # fmt: skip
    members["secrets"] |= {"items": _SECRET, "maxItems": SECRETS_MAX}
    members["old_secrets"]["maxItems"] = SECRETS_MAX
    members["headers"]["maxProperties"] = HEADERS_MAX
    members["filter"]["anyOf"][0]["maxLength"] = EXPRESSION_BYTES_MAX
    label = {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"}
    labels = {"type": "array", "items": label, "maxItems": REGIONS_MAX}
    members["region"] = {"description": members["region"]["description"], "anyOf": [label, labels, _NULL]}
    members["url"]["pattern"] = "^https?://"
    for name in ("proxy", "tls"):
        members[name]["anyOf"][0]["pattern"] = "^[A-Za-z0-9_-]{1,64}$"
    members["events"] |= {
        "items": {"type": "string", "maxLength": PATTERN_LENGTH_MAX}, "maxItems": PATTERNS_MAX,
    }  # fmt: skip
    return found | {
        CONFIGURATION: _object(
            members, "A receiver's configuration; missing members take their defaults.",
            required=["url"], additionalProperties=False,
        ),
        PATCH: _object(
            {"url": members["url"]}
            | {name: _or_null(each, found) for name, each in members.items() if name != "url"},
            "Members to change; null resets a member to its default.", additionalProperties=False,
        ),
        SHOWN: _object(
            members, f"A receiver's configuration as it was put, with {MASK} in place of secrets.",
        ),
    }  # fmt: skip


def _object(members: Schema, description: str, **more: Any) -> Schema:
    return {"type": "object", "description": description, "properties": members} | more


def _or_null(schema: Schema, objects: dict[str, Schema]) -> Schema:
    """The schema of a member in a patch: null resets it, and an object may be partial."""
    choices = [{key: value for key, value in schema.items() if key != "description"}]
    match schema:
        case {"anyOf": [*given]}:
            choices = [each for each in given if each != _NULL]
        case {"additionalProperties": values}:
            choices[0] |= {"additionalProperties": {"anyOf": [values, _NULL]}}
    choices = [_some_members(each["$ref"], objects) if "$ref" in each else each for each in choices]
    return {"description": schema["description"], "anyOf": [*choices, _NULL]}


def _some_members(reference: str, objects: dict[str, Schema]) -> Schema:
    """The schema of an object in a patch."""
    members = objects[reference.rpartition("/")[2]]["properties"]
    partial = {name: _or_null(each, objects) for name, each in members.items()}
    return {"type": "object", "properties": partial, "additionalProperties": False}


def _describe(members: Schema, prefix: str) -> None:
    """Describe members, with their defaults as text.

    Generators of clients treat a member with a `default` as required.
    """
    for name, schema in members.items():
        default = schema.pop("default", None)
        default_text = "" if default is None else f" Default: {msgspec.json.encode(default).decode()}."
        schema["description"] = DESCRIPTIONS[prefix + name] + default_text
