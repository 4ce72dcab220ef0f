"""Names and ids: what may be in a subject, and the stable hashes for numbering and jitter.

Every hash here is BLAKE2b, so that it is the same on every machine, in every process and in every version:
a dedup key that changed with the interpreter would let a duplicate through after an upgrade.
"""

import re
from functools import lru_cache
from hashlib import blake2b

from actors.errors import InvalidName

KEY_BYTES = 8
"""Length of the key by which the dedup window knows an event."""

KEYS_KEPT_MAX = 4096
"""Keys that are kept for events in flight, some 200 bytes each."""

UNKNOWN_RECEIVERS = "_unknown"
"""Name of the record of all unknown receivers, one for each shard, where a receiver's name would be."""

OUR_TYPES = "angarium."
"""The beginning of all event types that are Angarium's own."""
ALERT_TYPES = "angarium.alert."

_TOKEN = "[A-Za-z0-9_-]"
_TENANT = re.compile(rf"[A-Za-z]{_TOKEN}{{0,63}}\Z")
_NAME = re.compile(rf"(?!_){_TOKEN}{{1,64}}\Z")
_TYPE = re.compile(rf"{_TOKEN}+(\.{_TOKEN}+){{0,15}}\Z")
_EVENT_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")
_TYPE_LENGTH_MAX = 200
_SHOWN_NAME_LENGTH_MAX = 128


def check_tenant(tenant: str) -> str:
    """Return `tenant`, or raise InvalidName."""
    if not _TENANT.match(tenant):
        raise InvalidName(f"tenant {tenant!r}: a letter, then up to 63 of A-Z a-z 0-9 _ -")
    return tenant


def is_tenant(name: str) -> bool:
    """True if a tenant can have that name."""
    return _TENANT.match(name) is not None


def shown_name(name: str) -> str:
    """The name by which a client calls itself, cut and made printable, for the record."""
    return "".join(each if each.isprintable() else "?" for each in name[:_SHOWN_NAME_LENGTH_MAX])


def split_receiver(receiver: str) -> tuple[str, str]:
    """Split `<tenant>.<name>` into its two tokens, or raise InvalidName."""
    tenant, dot, name = receiver.partition(".")
    if not dot:
        raise InvalidName(f"receiver {receiver!r}: write it as <tenant>.<name>")
    check_tenant(tenant)
    if not _NAME.match(name):
        raise InvalidName(f"receiver name {name!r}: 1 to 64 of A-Z a-z 0-9 _ -, not beginning with _")
    return tenant, name


def tenant_of(address: str) -> str:
    """The tenant of a receiver, or of an event by its address `<tenant>.<type>`; neither is checked."""
    return address.partition(".")[0]


def check_type(event_type: str) -> str:
    """Return `event_type`, or raise InvalidName. Types that begin with `angarium.` are Angarium's own."""
    if len(event_type) > _TYPE_LENGTH_MAX or not _TYPE.match(event_type):
        raise InvalidName(
            f"event type {event_type[:80]!r}: 1 to 16 tokens of A-Z a-z 0-9 _ - joined by dots, "
            f"{_TYPE_LENGTH_MAX} characters at most"
        )
    return event_type


def is_alert_type(event_type: str) -> bool:
    """True for the type of an event about an alert."""
    return event_type.startswith(ALERT_TYPES)


def is_event_id(text: str) -> bool:
    """Return whether an event can have this id."""
    return _EVENT_ID.match(text) is not None


def event_id(given: str | None, place: int | str, stored_at: float) -> str:
    """The id of an event: the one its producer gave, or a hash of that, or one made from the stored message.

    A derived id contains both the place and the time of the message, so that it stays unique when a stream is
    recreated and its positions start again. A `place` must also say which stream it is in, unless that is
    clear from the kind of event.
    """
    if given is None:
        return f"evt_{place}_{round(stored_at * 1000)}"
    if _EVENT_ID.match(given):
        return given
    return "h_" + blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@lru_cache(maxsize=KEYS_KEPT_MAX)
def dedup_key(event: str, again: str) -> bytes:
    """Eight bytes for an event's id in the dedup window; an event sent `again` has a key of its own.

    Cached: it is needed before an event's attempt, and again with its outcome.
    """
    return blake2b(f"{event}\n{again}".encode() if again else event.encode(), digest_size=KEY_BYTES).digest()


def fraction(receiver: str, sequence: int, attempt: int) -> float:
    """A number in [0, 1) that looks random and never changes: the jitter of one attempt."""
    digest = blake2b(f"{receiver}\n{sequence}\n{attempt}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / (1 << 53)


def stable_hash(text: str, size: int = 8) -> str:
    """Hexadecimal digits, of `size` bytes, that stand for a `text` that may be secret, such as a URL."""
    return blake2b(text.encode(), digest_size=size).hexdigest()
