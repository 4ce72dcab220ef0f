"""A stream of the server in memory: what it accepts, what it refuses, and when it forgets.

The order of the checks and the words of the refusals are nats-server's (2.15.1, one server, file store);
`tests/contract` compares them. With `clustered` it judges as a cluster does: a repeated message id before
an expectation.
"""

import heapq
from typing import Any

from tests.sim.server import refusals
from tests.sim.server.consumers.consumer import Consumer
from tests.sim.server.refusals import Refusal
from tests.sim.server.streams.batches import Batches
from tests.sim.server.streams.drafts import (
    LAST,
    LAST_ID,
    LAST_OF,
    LAST_OF_STREAM,
    MARKER,
    MESSAGE_ID,
    NOTHING,
    ROLLUP,
    TTL,
    Draft,
    Staged,
)
from tests.sim.server.streams.replica import PurgedMessage, Replica, Replicas
from tests.sim.server.streams.store import Headers, Store, Stored, header_block, size_of
from tests.sim.server.streams.stream_config import SECOND, ttl_s
from tests.sim.server.subjects import Transform, covers, overlap, transform
from tests.sim.server.timing import Alarm, Timing

Answer = dict[str, Any]

HEARTBEAT_S = 1.0
LOST_QUORUM_S = 10.0
"""Time for which a leader believes in a replica that is silent."""
HEADERS_MAX = 65_535


class Stream:
    def __init__(self, timing: Timing, config: dict[str, Any], clustered: bool) -> None:
        self.timing = timing
        self.created_ns = timing.wall_ns()
        self.clustered = clustered
        self.store = Store()
        self.replicas = Replicas(self.store)
        self.consumers: dict[str, Consumer] = {}
        self.has_leader = True
        self.deposed: Store | None = None
        self._deposed_at = 0.0
        self._ids: dict[str, tuple[int, int]] = {}
        self._last_id = ""
        self._mortal: list[tuple[int, int]] = []
        self._expiry = Alarm(timing, self._expire)
        self._batches = Batches(self)
        self.configure(config)

    def configure(self, config: dict[str, Any]) -> None:
        self.config = config
        self.name: str = config["name"]
        self.subjects: list[str] = config["subjects"]
        change = config.get("subject_transform")
        self._transform: Transform | None = transform(change["src"], change["dest"]) if change else None
        self._enforce_limits()
        self._expire()

    # Publishing.

    def publish(self, subject: str, data: bytes, headers: Headers | None) -> Answer | None:
        """Take a message that one of the stream's subjects covers; the answer, None for an empty one."""
        if self.config["retention"] != "limits":
            raise NotImplementedError("the server in memory keeps by limits only")
        draft = (self._transform.apply(subject) if self._transform else subject, data, headers)
        if (too_large := self._too_large(draft)) is not None:
            return self.refused(too_large)
        if headers and "Nats-Batch-Id" in headers:
            return self._batches.publish(draft)
        judged = self._judge_as_cluster(draft, NOTHING) if self.clustered else self._judge(draft)
        if isinstance(judged, int):
            return self._acknowledged(judged, duplicate=True)
        refusal = judged or self._no_room(draft, NOTHING)
        return self.refused(refusal) if refusal else self._acknowledged(self.keep(draft))

    def refused(self, refusal: Refusal) -> Answer:
        return {"error": refusal, "stream": self.name, "seq": 0}

    def _acknowledged(self, sequence: int, **more: object) -> Answer:
        return {"stream": self.name, "seq": sequence, **more}

    def _judge(self, draft: Draft) -> Refusal | int | None:
        """Returns the objection to a message, or the sequence of the one that it repeats."""
        subject, headers = draft[0], draft[2] or {}
        lives_s = ttl_s(headers.get(TTL, "never"))
        return (
            self._wrong_stream(headers)
            or (refusals.TTL_DISABLED if lives_s and not self.config["allow_msg_ttl"] else None)
            or self._unmet(subject, headers, NOTHING)
            or self._repeat_of(headers)
            or self._rollup_refusal(headers)
            or (refusals.TTL_INVALID if lives_s is None else None)
        )

    def _judge_as_cluster(self, draft: Draft, staged: Staged) -> Refusal | int | None:
        """Judges in the order in which a cluster does before it agrees on a message."""
        subject, headers = draft[0], draft[2] or {}
        ttl_refusal = None
        if TTL in headers and not self.config["allow_msg_ttl"]:
            ttl_refusal = refusals.TTL_DISABLED
        elif ttl_s(headers.get(TTL, "never")) is None:
            ttl_refusal = refusals.TTL_INVALID
        return (
            self._wrong_stream(headers)
            or ttl_refusal
            or self._repeat_of(headers)
            or self._unmet(subject, headers, staged)
            or self._rollup_refusal(headers)
        )

    def refusal(self, draft: Draft, staged: Staged) -> Refusal | None:
        """Why a message of a batch is not taken, after those that are staged."""
        judged = self._judge_as_cluster(draft, staged)
        if isinstance(judged, int) or (draft[2] or {}).get(MESSAGE_ID) in staged.ids:
            return refusals.ATOMIC_DUPLICATE
        return judged or self._no_room(draft, staged)

    def _wrong_stream(self, headers: Headers) -> Refusal | None:
        return refusals.WRONG_STREAM if headers.get("Nats-Expected-Stream", self.name) != self.name else None

    def _too_large(self, draft: Draft) -> Refusal | None:
        _, data, headers = draft
        most: int = self.config["max_msg_size"]
        if 0 <= most < len(header_block(headers)) + len(data):
            return refusals.MESSAGE_TOO_LARGE
        return refusals.HEADERS_TOO_LARGE if len(header_block(headers)) > HEADERS_MAX else None

    def _unmet(self, subject: str, headers: Headers, staged: Staged) -> Refusal | None:
        """The first expectation that does not hold."""
        if LAST in headers:
            watched = headers.get(LAST_OF, subject)
            if _number(headers[LAST]) != (last := self.store.last_sequence_of(watched)):
                return refusals.wrong_last_sequence(last)
            if watched in staged.subjects:
                return refusals.CONFLICT
        elif LAST_OF in headers:
            return refusals.NO_EXPECTED_SEQUENCE
        last = self.store.last + staged.count
        if LAST_OF_STREAM in headers and _number(headers[LAST_OF_STREAM]) != last:
            return refusals.wrong_last_sequence(last)
        if LAST_ID in headers and headers[LAST_ID] != self._last_id:
            return refusals.wrong_last_id(self._last_id)
        return None

    def _rollup_refusal(self, headers: Headers) -> Refusal | None:
        if ROLLUP not in headers:
            return None
        if not self.config["allow_rollup_hdrs"]:
            return refusals.ROLLUP_DENIED
        if headers[ROLLUP] == "all":
            return refusals.not_supported("the rollup of all subjects")
        return None if headers[ROLLUP] == "sub" else refusals.rollup_invalid(headers[ROLLUP])

    def _no_room(self, draft: Draft, staged: Staged) -> Refusal | None:
        """A stream that discards what is new has no room; a message that takes an old one's place may fit."""
        config, store = self.config, self.store
        if config["discard"] != "new":
            return None
        subject, data, headers = draft
        size, per_subject = size_of(subject, headers, data), config["max_msgs_per_subject"]
        sequences = store.subjects.get(subject, [])
        replaces = 0 < per_subject <= len(sequences)
        if replaces and config.get("discard_new_per_subject"):
            return refusals.store_full("messages per subject")
        if 0 < config["max_msgs"] <= len(store.messages) + staged.count and not replaces:
            return refusals.store_full("messages")
        if 0 < config["max_bytes"] < store.bytes + staged.bytes + size:
            freed = store.messages[sequences[0]].size if replaces else 0
            if freed <= size:
                return refusals.store_full("bytes")
        return None

    def _repeat_of(self, headers: Headers) -> int | None:
        """The sequence of the message that had the same id within the window."""
        if MESSAGE_ID not in headers:
            return None
        oldest = self.timing.wall_ns() - self.config["duplicate_window"]
        while self._ids and next(iter(self._ids.values()))[1] < oldest:
            del self._ids[next(iter(self._ids))]
        repeated = self._ids.get(headers[MESSAGE_ID])
        return repeated[0] if repeated else None

    # Keeping and forgetting.

    def keep(self, draft: Draft) -> int:
        """Store a message that nothing speaks against; returns its sequence."""
        subject, data, block = draft
        message = Stored(subject, self.store.last + 1, self.timing.wall_ns(), block, data)
        headers = block or {}
        self.store.add(message)
        self.replicas.changed(message)
        self._last_id = headers.get(MESSAGE_ID, "")
        if self._last_id:
            self._ids[self._last_id] = (message.sequence, message.at_ns)
        if lives_s := ttl_s(headers.get(TTL, "never")):
            heapq.heappush(self._mortal, (message.at_ns + lives_s * SECOND, message.sequence))
        if ROLLUP in headers:
            self.purge_subject(subject, self.store.last + 1, keep=1)
        self._enforce_limits(subject)
        self._set_expiry()
        for consumer in self.consumers.values():
            if covers(consumer.filter, subject):
                consumer.stored(message.sequence)
        return message.sequence

    def remove(self, sequence: int) -> bool:
        message = self.store.remove(sequence)
        if message is None:
            return False
        self.replicas.changed(sequence)
        for consumer in self.consumers.values():
            if covers(consumer.filter, message.subject):
                consumer.removed(sequence)
        return True

    def purge(self, first: int) -> int:
        """Drop all below `first`; returns how many. Consumers are told even if there is nothing to drop."""
        dropped = self.store.compact(first)
        self.replicas.changed((first,))
        for consumer in self.consumers.values():
            consumer.purged(self.store.first)
        return len(dropped)

    def purge_subject(self, pattern: str, first: int, keep: int) -> int:
        """Drop what the pattern covers below `first`, except the last `keep` of it; returns how many."""
        found = [self.store.subjects[subject] for subject in self.store.counts(pattern)]
        sequences = sorted(sequence for each in found for sequence in each if sequence < first)
        dropped = sequences[: len(sequences) - keep]
        for sequence in dropped:
            self.store.remove(sequence)
            self.replicas.changed(PurgedMessage(sequence))
        for consumer in self.consumers.values():
            if overlap(consumer.filter, pattern):
                consumer.purged(self.store.first)
        return len(dropped)

    def _enforce_limits(self, subject: str | None = None) -> None:
        config, store = self.config, self.store
        per_subject = config["max_msgs_per_subject"]
        if per_subject > 0:
            for name in [subject] if subject else list(store.subjects):
                for sequence in store.subjects.get(name, [])[:-per_subject]:
                    self.remove(sequence)
        while 0 < config["max_msgs"] < len(store.messages) or 0 < config["max_bytes"] < store.bytes:
            self.remove(store.first)

    # Age.

    def _expire(self) -> None:
        now, store = self.timing.wall_ns(), self.store
        max_age = self.config["max_age"]
        while max_age and store.messages and store.messages[store.first].at_ns + max_age <= now:
            self._die(store.first)
        while self._mortal and self._mortal[0][0] <= now:
            self._die(heapq.heappop(self._mortal)[1])
        self._set_expiry()

    def _die(self, sequence: int) -> None:
        """A message's time is over. The last of its subject leaves a marker, where the stream wants one."""
        message = self.store.messages.get(sequence)
        if message is None:
            return
        self.remove(sequence)
        marker_ttl = self.config.get("subject_delete_marker_ttl", 0)
        if (
            marker_ttl
            and message.subject not in self.store.subjects
            and MARKER not in (message.headers or {})
        ):
            headers = {MARKER: "MaxAge", TTL: f"{marker_ttl // SECOND}s", ROLLUP: "sub"}
            self.keep((message.subject, b"", headers))

    def _set_expiry(self) -> None:
        times = [self._mortal[0][0]] if self._mortal else []
        if self.config["max_age"] and self.store.messages:
            times.append(self.store.messages[self.store.first].at_ns + self.config["max_age"])
        if times:
            self._expiry.set(self.timing.now() + (min(times) - self.timing.wall_ns()) / 1e9)

    # Failing.

    def depose(self) -> None:
        """The stream has another leader, and the old one does not know it yet."""
        self.deposed, self._deposed_at = Replica(self.store).store, self.timing.now()

    def find_out(self) -> None:
        """The leader that was deposed knows it."""
        self.deposed = None

    def told_by(self, store: Store) -> Answer:
        """Says who leads and when it last heard of its replicas, by the leader that has this store."""
        if self.config["num_replicas"] <= 1:
            return {"leader": "memory"}
        now = self.timing.now()
        heard_s = 1e-4 + min(now % HEARTBEAT_S, max(0.0, self.timing.wall_ns() - store.last_ns) / 1e9)
        if store is self.deposed:
            heard_s += now - self._deposed_at
        replica = {"current": heard_s < LOST_QUORUM_S, "active": round(heard_s * 1e9)}
        return {"leader": "memory", "replicas": [{"name": name, **replica} for name in ("one", "two")]}

    def restart(self, forgetful: bool) -> None:
        """The server is started again: what is on disk comes back, the rest does not."""
        self._batches = Batches(self)
        self._ids = {
            message.headers[MESSAGE_ID]: (message.sequence, message.at_ns)
            for message in self.store.messages.values()
            if message.headers and MESSAGE_ID in message.headers
        }
        for consumer in list(self.consumers.values()):
            if consumer.in_memory:
                self.lose(consumer)
            else:
                consumer.restart(forgetful)

    def lose(self, consumer: Consumer) -> None:
        """Forget a consumer whose server is gone."""
        del self.consumers[consumer.name]
        consumer.vanish()


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else -1
