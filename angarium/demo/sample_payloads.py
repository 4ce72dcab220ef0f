"""Real webhook payloads, for the demo and the tests; `payloads/README.md` says where they come from."""

from importlib import resources

import msgspec
from msgspec import Struct


class Payload(Struct, frozen=True):
    """An event as a producer has it: its type, such as `github.star.created`, and its body, in JSON."""

    type: str
    body: bytes


class _Line(Struct):
    type: str
    data: msgspec.Raw  # The bytes of the file, published unchanged.


def load() -> list[Payload]:
    """All sample payloads, always in the same order."""
    lines = resources.files("angarium.demo").joinpath("payloads", "payloads.jsonl").read_bytes().splitlines()
    parsed = (msgspec.json.decode(line, type=_Line) for line in lines)
    return [Payload(line.type, bytes(line.data)) for line in parsed]
