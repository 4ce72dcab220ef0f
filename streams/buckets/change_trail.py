"""The trail of a configuration, in a header: the earlier changes, with the author and the members of each.

A put drops the older values of its key, since they may contain old secrets. A late reader finds them here,
without secrets. Each change in the trail has only the members that the next one changed, with their earlier
values, so that several changes fit into a header.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from actors.ids import shown_name
from streams.buckets.follower import is_removal
from streams.buckets.without_secrets import known_fingerprints, without_secrets
from streams.nats.answers import StoredMessage
from streams.nats.wire_names import CHANGED_BY, EXPECTED, FINGERPRINTS, SINCE, SINCE_ITSELF, TRAIL

TRAIL_CHANGES_MAX = 8
TRAIL_LENGTH_MAX = 4096
"""Characters of the header: half of the room that the bucket has for headers."""
TRAIL_BRACKETS_MAX = 256
"""Brackets in the header: a text as deep as the decoder just allows could not be encoded again."""


class RecordedConfiguration(Struct, frozen=True):
    """A configuration without its secrets, or None if it was removed; `by`: who did that, if it is known.

    `replaced`: the revision before it; 0 if it created the receiver, None if that is not known.
    """

    revision: int
    stored_at: float
    document: dict[str, Any] | None
    by: str
    replaced: int | None


class _PastChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change in the header.

    - `members`: those that the next change changed, as they were before it.
    - `absent`: those that the next change added.
    """

    revision: int
    at: float
    by: str = ""
    replaced: int | None = None
    removed: bool = False
    members: dict[str, Any] = {}
    absent: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(list[_PastChange])


def trail_after(
    values: Sequence[StoredMessage], raw: bytes | None, fingerprints: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The header of a value that replaces these, the oldest first; without `raw` it is a removal.

    - `fingerprints`: those of its sealed members.
    """
    following = without_secrets(raw, fingerprints) if raw is not None else {}
    trail: list[_PastChange] = []
    for index in reversed(range(len(values))):
        older = values[index - 1].position if index else None
        each = recorded(values[index], older)
        document = each.document or {}
        trail.append(
            _PastChange(
                revision=each.revision, at=each.stored_at, by=each.by, replaced=each.replaced,
                removed=each.document is None,
                members={
                    name: value
                    for name, value in document.items()
                    if name not in following or following[name] != value
                },
                absent=tuple(name for name in following if name not in document),
            )
        )  # fmt: skip
        following = document
    trail += _trail_of(values[0]) if values else []
    for count in range(min(len(trail), TRAIL_CHANGES_MAX), 0, -1):
        text = json.dumps(msgspec.to_builtins(trail[:count]), separators=(",", ":"))
        if len(text) <= TRAIL_LENGTH_MAX and _brackets(text) <= TRAIL_BRACKETS_MAX:
            return {TRAIL: text}
    return {}


def recorded(message: StoredMessage, older: int | None = None) -> RecordedConfiguration:
    """The configuration in a message; `older`: the revision before it in the bucket, if that is known."""
    removed = is_removal(message)
    document = None if removed else shown_document(message)
    return RecordedConfiguration(
        message.position, message.stored_at, document, changed_by(message), _replaced(message, older)
    )


def shown_document(message: StoredMessage) -> dict[str, Any]:
    """The configuration in a message without its secrets."""
    return without_secrets(message.data, known_fingerprints(message.headers.get(FINGERPRINTS, "")))


def recorded_before(message: StoredMessage) -> list[RecordedConfiguration]:
    """The configurations before the one in a message, by its trail, the oldest first."""
    document = {} if is_removal(message) else shown_document(message)
    return list(_recorded_backwards(document, _trail_of(message)))[::-1]


def _recorded_backwards(
    document: dict[str, Any], trail: Sequence[_PastChange]
) -> Iterator[RecordedConfiguration]:
    for each in trail:
        document = {name: value for name, value in document.items() if name not in each.absent} | each.members
        kept = None if each.removed else document
        yield RecordedConfiguration(each.revision, each.at, kept, shown_name(each.by), each.replaced)


def changed_by(message: StoredMessage) -> str:
    """The author of a change, as the client named itself: any text, so it is cut and made printable."""
    return shown_name(message.headers.get(CHANGED_BY, ""))


def _replaced(message: StoredMessage, older: int | None) -> int | None:
    if message.headers.get(SINCE) == SINCE_ITSELF:
        return 0
    expected = message.headers.get(EXPECTED, "")
    return int(expected) if expected.isdecimal() else older


def _brackets(text: str) -> int:
    return text.count("[") + text.count("{")


def _trail_of(message: StoredMessage) -> list[_PastChange]:
    """The changes in the header, the newest first; none if another client wrote something else there."""
    text = message.headers.get(TRAIL, "")
    if len(text) > TRAIL_LENGTH_MAX or _brackets(text) > TRAIL_BRACKETS_MAX:
        return []
    try:
        return _decoder.decode(text) if text else []
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return []
