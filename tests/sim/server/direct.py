"""Direct gets (ADR-31): messages from any replica, without the leader."""

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.sim.server.consumers.pulls import status
from tests.sim.server.streams.store import Headers, Store, Stored, header_block
from tests.sim.server.timing import rfc3339

Part = tuple[Headers, bytes]
SUBJECTS_MAX = 1024


def direct_get(stream: str, store: Store, request: bytes) -> Iterator[Part]:
    """The messages that answer a request, each with what the server adds to its headers; statuses too."""
    try:
        wanted: dict[str, Any] = msgspec.json.decode(request or b"{}")
    except msgspec.DecodeError:
        yield status(408, "Malformed Request"), b""
        return
    if not wanted:
        yield status(408, "Empty Request"), b""
    elif "multi_last" in wanted:
        yield from _last_of_each(stream, store, wanted["multi_last"])
    elif "batch" in wanted:
        yield from _page(stream, store, wanted)
    elif message := _one(store, wanted):
        yield _headers(stream, message), message.data
    else:
        yield status(404, "Message Not Found"), b""


def _one(store: Store, wanted: dict[str, Any]) -> Stored | None:
    if "last_by_subj" in wanted:
        return store.last_of(wanted["last_by_subj"])
    if "next_by_subj" in wanted:
        return store.next(wanted["next_by_subj"], wanted.get("seq", 1))
    return store.messages.get(wanted["seq"])


def _page(stream: str, store: Store, wanted: dict[str, Any]) -> Iterator[Part]:
    """Each message names the one before it and how many are left; a status ends the page."""
    pattern, sequence = wanted.get("next_by_subj", ">"), wanted.get("seq", 1)
    pending = store.count(pattern, sequence)
    sent_bytes, before = 0, 0
    for _ in range(wanted["batch"]):
        message = store.next(pattern, sequence)
        if message is None:
            break
        pending -= 1
        yield _headers(stream, message) | _place(pending, before), message.data
        before, sequence = message.sequence, message.sequence + 1
        sent_bytes += len(message.subject) + len(header_block(message.headers)) + len(message.data)
        if 0 < wanted.get("max_bytes", 0) <= sent_bytes:
            break
    yield (status(204, "EOB") | _place(pending, before) if before else status(404, "Message Not Found")), b""


def _last_of_each(stream: str, store: Store, patterns: list[str]) -> Iterator[Part]:
    """The newest message of each subject in the order of the stream; the status says how far that goes."""
    subjects = {subject for pattern in patterns for subject in store.counts(pattern)}
    sequences = sorted(store.last_sequence_of(subject) for subject in subjects)
    if len(sequences) > SUBJECTS_MAX:
        yield status(413, "Too Many Results"), b""
        return
    before = 0
    for left, sequence in zip(reversed(range(len(sequences))), sequences, strict=True):
        message = store.messages[sequence]
        yield _headers(stream, message) | _place(left, before), message.data
        before = sequence
    if not before:
        yield status(404, "No Results"), b""
        return
    yield status(204, "EOB") | _place(0, before) | {"Nats-UpTo-Sequence": str(store.last)}, b""


def _headers(stream: str, message: Stored) -> Headers:
    added = {
        "Nats-Stream": stream,
        "Nats-Subject": message.subject,
        "Nats-Sequence": str(message.sequence),
        "Nats-Time-Stamp": rfc3339(message.at_ns),
    }
    return (message.headers or {}) | added


def _place(pending: int, before: int) -> Headers:
    return {"Nats-Num-Pending": str(pending), "Nats-Last-Sequence": str(before)}
