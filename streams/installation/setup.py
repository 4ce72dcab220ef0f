"""Creates and checks streams, buckets and consumers.

Only missing parts are created. Everything is checked before anything is created, so that a refusal changes
nothing; and two commands at the same time create the same parts.
"""

from collections.abc import Awaitable
from itertools import groupby
from typing import Any

from msgspec import Struct

from actors.errors import Unavailable
from streams.installation.requirements import SHARDS, Mismatch, consumer_problems, stream_problems
from streams.installation.topology import STAMP_VERSION, Installation, consumers, streams
from streams.nats.answers import ConsumerInfo, StreamInfo
from streams.nats.codes import STORAGE_EXCEEDED, STORE_FAILED
from streams.nats.errors import ApiError, NotPermitted, SetupError
from streams.nats.jetstream import JetStream

OLDEST_SERVER = (2, 14)
"""The first version that can reset consumers, on which every takeover relies."""

REMEDIES = {
    STORAGE_EXCEEDED: "it reserves 2.75 times max_bytes for all streams; give a smaller --max-bytes, or "
    "nats-server a larger disk or max_file_store",
    STORE_FAILED: "nats-server's log says why; its disk may be full or read-only",
}


class _Stream(Struct):
    wanted: dict[str, Any]
    actual: StreamInfo | None

    def problems(self) -> list[Mismatch]:
        return [] if self.actual is None else stream_problems(self.wanted, self.actual.config)

    def is_unstamped(self) -> bool:
        return self.actual is not None and STAMP_VERSION not in (self.actual.config.get("metadata") or {})


class _Consumer(Struct):
    stream: str
    wanted: dict[str, Any]
    actual: ConsumerInfo | None

    def problems(self) -> list[Mismatch]:
        return [] if self.actual is None else consumer_problems(self.stream, self.wanted, self.actual.config)


async def setup(js: JetStream, installation: Installation) -> list[str]:
    """Create the missing parts and stamp them; returns lines that say what was created.

    Raises `SetupError` if an existing part would break a promise, or if the server is too old, has no
    JetStream, or refuses; `Unavailable` if it does not answer.
    """
    found_streams, found_consumers = await _look(js, installation)
    problems = _problems(found_streams, found_consumers)
    if problems:
        raise SetupError("; ".join(map(str, problems)))
    return await _make_streams(js, found_streams) + await _make_consumers(js, found_consumers)


async def check(js: JetStream, installation: Installation) -> list[Mismatch]:
    """Find what `setup` would refuse or would have to create. Raises the same errors about the server."""
    found_streams, found_consumers = await _look(js, installation)
    problems = _problems(found_streams, found_consumers)
    if any(problem.field == SHARDS for problem in problems):
        return problems
    why = "run `angarium setup`"
    for stream in found_streams:
        if stream.actual is None:
            problems.append(
                Mismatch("the installation", f"stream {stream.wanted['name']}", "missing", "there", why)
            )
    for name, group in groupby(found_consumers, key=lambda consumer: consumer.stream):
        missing = [consumer for consumer in group if consumer.actual is None]
        if missing:
            problems.append(Mismatch("the installation", _listed(name, missing), "missing", "there", why))
    return problems


async def _look(js: JetStream, installation: Installation) -> tuple[list[_Stream], list[_Consumer]]:
    await _check_server(js)
    found_streams = [
        _Stream(config, await js.stream_info(config["name"])) for config in streams(installation)
    ]
    there = {stream.wanted["name"] for stream in found_streams if stream.actual is not None}
    found_consumers = [
        _Consumer(
            stream,
            config,
            await js.consumer_info(stream, config["durable_name"]) if stream in there else None,
        )
        for stream, config in consumers(installation)
    ]
    return found_streams, found_consumers


async def _check_server(js: JetStream) -> None:
    version = js.wire.server_version
    if tuple(map(int, version.split(".")[:2])) < OLDEST_SERVER:
        oldest = ".".join(map(str, OLDEST_SERVER))
        raise SetupError(f"nats-server is {version}, must be {oldest} or newer: upgrade it")
    try:
        await js.check()
    except NotPermitted as error:
        raise SetupError(str(error)) from error
    except (ApiError, Unavailable) as error:
        raise SetupError(
            f"JetStream does not answer ({error}): enable it in nats-server (-js) and for this account"
        ) from error


def _problems(found_streams: list[_Stream], found_consumers: list[_Consumer]) -> list[Mismatch]:
    problems = [problem for stream in found_streams for problem in stream.problems()]
    if shards := [problem for problem in problems if problem.field == SHARDS]:
        return _merged(shards)  # With the wrong number everything else looks wrong, too, and is not.
    return _merged(problems + [problem for consumer in found_consumers for problem in consumer.problems()])


def _merged(problems: list[Mismatch]) -> list[Mismatch]:
    """Merge equal problems of several streams or consumers into one."""
    places: dict[tuple[str, str, str, str], list[str]] = {}
    for each in problems:
        places.setdefault((each.field, each.has, each.wants, each.why), []).append(each.where)
    return [Mismatch(", ".join(dict.fromkeys(where)), *rest) for rest, where in places.items()]


async def _make_streams(js: JetStream, found: list[_Stream]) -> list[str]:
    made: list[str] = []
    for stream in found:
        name, subjects = stream.wanted["name"], ", ".join(stream.wanted["subjects"])
        if stream.actual is None:
            await _made(f"stream {name}", js.stream_create(stream.wanted))
            made.append(f"stream {name} of {subjects}")
        elif stream.is_unstamped():
            stamp = (stream.actual.config.get("metadata") or {}) | stream.wanted["metadata"]
            await _made(f"stream {name}", js.stream_update(stream.actual.config | {"metadata": stamp}))
            made.append(f"stamp of stream {name}")
    return made


async def _make_consumers(js: JetStream, found: list[_Consumer]) -> list[str]:
    made: list[str] = []
    for name, group in groupby(found, key=lambda consumer: consumer.stream):
        missing = [consumer for consumer in group if consumer.actual is None]
        for consumer in missing:
            what = f"consumer {consumer.wanted['durable_name']} of {name}"
            await _made(what, js.consumer_create(name, consumer.wanted))
        if missing:
            made.append(_listed(name, missing))
    return made


def _listed(stream: str, missing: list[_Consumer]) -> str:
    names = [consumer.wanted["durable_name"] for consumer in missing]
    if len(names) == 1:
        return f"consumer {names[0]} of {stream}"
    return f"{len(names)} consumers of {stream} ({names[0]} to {names[-1]})"


async def _made(what: str, making: Awaitable[object]) -> None:
    try:
        await making
    except ApiError as error:
        remedy = f": {REMEDIES[error.code]}" if error.code in REMEDIES else ""
        raise SetupError(f"nats-server refuses to create {what}: {error}{remedy}") from error
