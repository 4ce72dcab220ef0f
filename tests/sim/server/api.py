"""The JetStream API of the server in memory: requests on `$JS.API…` and their answers in JSON."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from streams.nats.protocol import timestamp_of
from streams.nats.wire import Message
from tests.sim.server import refusals
from tests.sim.server.consumers import consumer_config
from tests.sim.server.consumers.consumer import Consumer
from tests.sim.server.refusals import Refusal, Refused
from tests.sim.server.streams import stream_config
from tests.sim.server.streams.store import Store, Stored, header_block
from tests.sim.server.streams.stream import Stream
from tests.sim.server.subjects import overlap
from tests.sim.server.timing import rfc3339

if TYPE_CHECKING:
    from tests.sim.server.core import FakeServer

Body = dict[str, Any]
Answer = dict[str, Any]

NEVER = "0001-01-01T00:00:00Z"
SUBJECTS_MAX = 100_000
"""Subjects that one answer of STREAM.INFO lists."""


class Api:
    def __init__(self, server: "FakeServer") -> None:
        self._server = server
        self._operations: dict[tuple[str, ...], tuple[str, Callable[..., Answer]]] = {
            ("INFO",): ("account_info", self._account),
            ("STREAM", "CREATE"): ("stream_create", self._create_stream),
            ("STREAM", "UPDATE"): ("stream_update", self._update_stream),
            ("STREAM", "INFO"): ("stream_info", self._stream_info),
            ("STREAM", "DELETE"): ("stream_delete", self._delete_stream),
            ("STREAM", "PURGE"): ("stream_purge", self._purge),
            ("STREAM", "NAMES"): ("stream_names", self._stream_names),
            ("STREAM", "MSG", "GET"): ("stream_msg_get", self._message),
            ("STREAM", "MSG", "DELETE"): ("stream_msg_delete", self._delete_message),
            ("CONSUMER", "CREATE"): ("consumer_create", self._create_consumer),
            ("CONSUMER", "INFO"): ("consumer_info", self._consumer_info),
            ("CONSUMER", "DELETE"): ("consumer_delete", self._delete_consumer),
            ("CONSUMER", "NAMES"): ("consumer_names", self._consumer_names),
            ("CONSUMER", "LIST"): ("consumer_list", self._list_consumers),
        }

    def take(self, tokens: list[str], message: Message) -> None:
        """Deal with a request soon. One that the server does not know gets no answer."""
        for length in (1, 2, 3):
            if found := self._operations.get(tuple(tokens[:length])):
                kind, operation = found
                self._server.aside(self._answer, kind, operation, tokens[length:], message)
                return

    def _answer(
        self, kind: str, operation: Callable[..., Answer], names: list[str], message: Message
    ) -> None:
        if (stream := self._stream_in(names)) and not stream.has_leader:
            if self._server.timing.chance.random() < 0.5:
                return
            answer: Answer = {"error": refusals.UNAVAILABLE}
        else:
            try:
                answer = operation(*names, body=_decoded(message.data))
            except Refused as refused:
                answer = {"error": refused.refusal}
        typed = {"type": f"io.nats.jetstream.api.v1.{kind}_response"} | answer
        self._server.send(message.reply, msgspec.json.encode(typed))

    def _stream_in(self, names: list[str]) -> Stream | None:
        return self._server.streams.get(names[0]) if names else None

    def _stream(self, name: str) -> Stream:
        if name not in self._server.streams:
            raise Refused(refusals.STREAM_NOT_FOUND)
        return self._server.streams[name]

    def _consumer(self, stream: str, name: str) -> Consumer:
        consumers = self._stream(stream).consumers
        if name not in consumers:
            raise Refused(refusals.CONSUMER_NOT_FOUND)
        return consumers[name]

    # The account and its streams.

    def _account(self, body: Body) -> Answer:
        streams = self._server.streams.values()
        return {
            "memory": 0,
            "storage": sum(stream.store.bytes for stream in streams),
            "streams": len(streams),
            "consumers": sum(len(stream.consumers) for stream in streams),
            "limits": {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1},
            "api": {"level": 5, "total": 0, "errors": 0},
        }

    def _create_stream(self, name: str, body: Body) -> Answer:
        config = self._checked(name, body)
        existing = self._server.streams.get(name)
        if existing is not None:
            if existing.config != config:
                raise Refused(refusals.STREAM_EXISTS)
            return self._described(existing)
        for stream in self._server.streams.values():
            if any(overlap(one, other) for one in config["subjects"] for other in stream.subjects):
                raise Refused(refusals.SUBJECTS_OVERLAP)
        stream = Stream(self._server.timing, config, self._server.clustered)
        self._server.streams[name] = stream
        return self._described(stream) | {"did_create": True}

    def _update_stream(self, name: str, body: Body) -> Answer:
        config = self._checked(name, body)
        stream = self._stream(name)
        stream_config.check_update(stream.config, config)
        stream.configure(config)
        return self._described(stream)

    def _checked(self, name: str, body: Body) -> Body:
        if body.get("name") != name:
            raise Refused(refusals.STREAM_NAME_MISMATCH)
        return stream_config.completed(body, self._server.clustered)

    def _stream_info(self, name: str, body: Body) -> Answer:
        stream = self._stream(name)
        store = self._told(stream)
        answer = self._described(stream, store) | {"total": 0, "offset": 0, "limit": 0}
        if counts := store.counts(body.get("subjects_filter", "")):
            offset = body.get("offset", 0)
            answer |= {"total": len(counts), "offset": offset, "limit": SUBJECTS_MAX}
            answer["state"]["subjects"] = dict(list(counts.items())[offset : offset + SUBJECTS_MAX])
        return answer

    def _told(self, stream: Stream) -> Store:
        """The answer of the leader; by chance one that was deposed."""
        deposed = stream.deposed
        return deposed if deposed and self._server.happens(self._server.faults.deposed) else stream.store

    def _described(self, stream: Stream, store: Store | None = None) -> Answer:
        store = store or stream.store
        first = store.messages.get(store.first)
        state = {
            "messages": len(store.messages),
            "bytes": store.bytes,
            "first_seq": store.first if store.last else 0,
            "first_ts": rfc3339(first.at_ns) if first else NEVER,
            "last_seq": store.last,
            "last_ts": rfc3339(store.last_ns) if store.last_ns else NEVER,
            "num_subjects": len(store.subjects),
            "num_deleted": store.last - store.first + 1 - len(store.messages),
            "consumer_count": len(stream.consumers),
        }
        return {
            "config": stream.config,
            "created": rfc3339(stream.created_ns),
            "state": state,
            "cluster": stream.told_by(store),
            "ts": rfc3339(self._server.timing.wall_ns()),
        }

    def _delete_stream(self, name: str, body: Body) -> Answer:
        stream = self._stream(name)
        del self._server.streams[name]
        for consumer in stream.consumers.values():
            consumer.delete()
        return {"success": True}

    def _purge(self, name: str, body: Body) -> Answer:
        stream = self._stream(name)
        if stream.config["deny_purge"]:
            raise Refused(refusals.PURGE_DENIED)
        if "filter" in body:
            below = body.get("seq", stream.store.last + 1)
            purged = stream.purge_subject(body["filter"], below, body.get("keep", 0))
        else:
            if "keep" in body:
                raise Refused(refusals.not_supported("a purge that keeps some, without a filter"))
            purged = stream.purge(body.get("seq", stream.store.last + 1))
        return {"success": True, "purged": purged}

    def _stream_names(self, body: Body) -> Answer:
        subject = body.get("subject")
        names = sorted(
            name
            for name, stream in self._server.streams.items()
            if subject is None or any(overlap(subject, pattern) for pattern in stream.subjects)
        )
        return {"total": len(names), "offset": 0, "limit": 1024, "streams": names}

    # Messages, from the leader.

    def _message(self, name: str, body: Body) -> Answer:
        store = self._told(self._stream(name))
        match {name: value for name, value in body.items() if value}:
            case {"last_by_subj": pattern, **rest} if not rest:
                message = store.last_of(pattern)
            case {"next_by_subj": pattern, **rest} if not rest.keys() - {"seq"}:
                message = store.next(pattern, rest.get("seq", 1))
            case {"next_by_subj": pattern, "start_time": instant, **rest} if not rest:
                message = store.next(pattern, store.sequence_at(round(timestamp_of(instant) * 1e9)))
            case {"seq": sequence, **rest} if not rest:
                message = store.messages.get(sequence)
            case _:
                raise Refused(refusals.BAD_REQUEST)
        if message is None:
            raise Refused(refusals.MESSAGE_NOT_FOUND)
        return {"message": _message_answer(message)}

    def _delete_message(self, name: str, body: Body) -> Answer:
        stream, sequence = self._stream(name), body["seq"]
        if stream.config["deny_delete"]:
            raise Refused(Refusal(500, 10057, "message delete not permitted"))
        if sequence > stream.store.last:
            raise Refused(Refusal(500, 10057, "stream store EOF"))
        if sequence < stream.store.first:
            raise Refused(Refusal(500, 10057, "no message found"))
        if not stream.remove(sequence):
            raise Refused(Refusal(400, 10043, f"sequence {sequence} not found"))
        return {"success": True}

    # Consumers.

    def _create_consumer(self, stream: str, name: str, *_filter: str, body: Body) -> Answer:
        if body.get("stream_name") != stream:
            raise Refused(refusals.STREAM_NAME_MISMATCH)
        of, action = self._stream(stream), body.get("action", "")
        config = consumer_config.completed(name, body["config"])
        consumer = of.consumers.get(name)
        if consumer is None:
            if action == "update":
                raise Refused(refusals.CONSUMER_MISSING)
            consumer = of.consumers[name] = Consumer(of, config, self._server)
        elif consumer.config != config:
            if action == "create":
                raise Refused(refusals.CONSUMER_EXISTS)
            consumer.reconfigure(config)
        return consumer.info()

    def _consumer_info(self, stream: str, name: str, body: Body) -> Answer:
        return self._consumer(stream, name).info()

    def _delete_consumer(self, stream: str, name: str, body: Body) -> Answer:
        self._consumer(stream, name).delete()
        del self._stream(stream).consumers[name]
        return {"success": True}

    def _consumer_names(self, stream: str, body: Body) -> Answer:
        names = sorted(self._stream(stream).consumers)
        return {"total": len(names), "offset": 0, "limit": 1024, "consumers": names}

    def _list_consumers(self, stream: str, body: Body) -> Answer:
        found = [each.info() for _, each in sorted(self._stream(stream).consumers.items())]
        return {"total": len(found), "offset": 0, "limit": 256, "consumers": found}


def _decoded(data: bytes) -> Body:
    try:
        body: Body = msgspec.json.decode(data or b"{}")
    except msgspec.DecodeError as error:
        raise Refused(refusals.invalid_json(error)) from error
    return body


def _message_answer(message: Stored) -> Answer:
    answer: Answer = {"subject": message.subject, "seq": message.sequence}
    if message.headers is not None:
        answer["hdrs"] = header_block(message.headers)
    if message.data:
        answer["data"] = message.data
    return answer | {"time": rfc3339(message.at_ns)}
