"""Creates and checks streams and buckets.

Only missing parts are created. Everything is checked before anything is created, so that a refusal changes
nothing; and two commands at the same time create the same parts.
"""

from collections.abc import Awaitable
from typing import Any

from msgspec import Struct

from actors.errors import Unavailable
from streams.installation.requirements import SHARDS, Mismatch, MissingStreams, stream_problems
from streams.installation.topology import STAMP_VERSION, Installation, streams
from streams.nats.answers import StreamInfo
from streams.nats.errors import ApiError, NotPermitted, SetupError
from streams.nats.jetstream import JetStream
from streams.nats.wire_names import STORAGE_EXCEEDED, STORE_FAILED

OLDEST_SERVER = (2, 14)
"""The first version that the tests run on; before 2.12 there are no atomic batches."""

REMEDIES = {
    STORAGE_EXCEEDED: "it reserves three times max_bytes for all streams; give a smaller --max-bytes, or "
    "nats-server a larger disk or max_file_store",
    STORE_FAILED: "nats-server's log says why; its disk may be full or read-only",
}


class _CheckedStream(Struct):
    wanted: dict[str, Any]
    actual: StreamInfo | None

    def problems(self) -> list[Mismatch]:
        return [] if self.actual is None else stream_problems(self.wanted, self.actual.config)

    def is_unstamped(self) -> bool:
        return self.actual is not None and STAMP_VERSION not in (self.actual.config.get("metadata") or {})


async def setup(js: JetStream, installation: Installation) -> list[str]:
    """Create the missing parts and stamp them; returns a line for each created part.

    Raises `SetupError` if an existing part would break a promise, or if the server is too old, has no
    JetStream, or refuses; `Unavailable` if it does not answer.
    """
    found = await _read_streams(js, installation)
    if problems := _problems(found):
        raise SetupError("; ".join(map(str, problems)))
    return await _make_streams(js, found)


async def check(js: JetStream, installation: Installation) -> list[Mismatch | MissingStreams]:
    """Find what `setup` would refuse or would have to create. Raises the same errors about the server."""
    found = await _read_streams(js, installation)
    problems: list[Mismatch | MissingStreams] = [*_problems(found)]
    if any(isinstance(each, Mismatch) and each.field == SHARDS for each in problems):
        return problems
    missing = _missing(found, installation)
    return problems if missing is None else [*problems, missing]


async def missing_streams(js: JetStream, installation: Installation) -> MissingStreams | None:
    """The streams that are missing, None if all exist. Raises `Unavailable` and `ApiError`."""
    found = [_CheckedStream(config, await js.stream_info(config["name"])) for config in streams(installation)]
    return _missing(found, installation)


def _missing(found: list[_CheckedStream], installation: Installation) -> MissingStreams | None:
    names = tuple(each.wanted["name"] for each in found if each.actual is None)
    return MissingStreams(names, installation.prefix, len(names) == len(found)) if names else None


async def _read_streams(js: JetStream, installation: Installation) -> list[_CheckedStream]:
    await check_server(js)
    return [_CheckedStream(config, await js.stream_info(config["name"])) for config in streams(installation)]


async def check_server(js: JetStream) -> None:
    """Raise `SetupError` if the server is too old, or has no JetStream for us."""
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
            f"JetStream does not answer ({error}): start the nats-servers that are down, since a cluster "
            "needs most of them; or enable it in nats-server (-js) and for this account"
        ) from error


def _problems(found: list[_CheckedStream]) -> list[Mismatch]:
    problems = [problem for stream in found for problem in stream.problems()]
    # With the wrong number of shards everything else looks wrong, too, and is not.
    return _merged([problem for problem in problems if problem.field == SHARDS] or problems)


def _merged(problems: list[Mismatch]) -> list[Mismatch]:
    """Merge equal problems of several streams into one."""
    places: dict[tuple[str, str, str, str], list[str]] = {}
    for each in problems:
        places.setdefault((each.field, each.has, each.wants, each.why), []).append(each.where)
    return [Mismatch(", ".join(dict.fromkeys(where)), *rest) for rest, where in places.items()]


async def _make_streams(js: JetStream, found: list[_CheckedStream]) -> list[str]:
    made: list[str] = []
    for stream in found:
        name, subjects = stream.wanted["name"], ", ".join(stream.wanted["subjects"])
        if stream.actual is None:
            await _create(f"stream {name}", js.stream_create(stream.wanted))
            made.append(f"stream {name} of {subjects}")
        elif stream.is_unstamped():
            stamp = (stream.actual.config.get("metadata") or {}) | stream.wanted["metadata"]
            await _create(f"stream {name}", js.stream_update(stream.actual.config | {"metadata": stamp}))
            made.append(f"stamp of stream {name}")
    return made


async def _create(what: str, making: Awaitable[object]) -> None:
    try:
        await making
    except ApiError as error:
        remedy = f": {REMEDIES[error.code]}" if error.code in REMEDIES else ""
        raise SetupError(f"nats-server refuses to create {what}: {error}{remedy}") from error
