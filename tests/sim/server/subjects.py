"""Subjects as nats-server understands them: what a pattern covers, and what a stream's transform makes."""

import re
from collections.abc import Callable
from functools import lru_cache

from msgspec import Struct


@lru_cache(maxsize=1 << 16)
def covers(pattern: str, subject: str) -> bool:
    """True if a message to `subject` reaches a subscription to `pattern`."""
    if pattern in (subject, ">"):
        return True
    if "*" not in pattern and ">" not in pattern:
        return False
    wanted, tokens = pattern.split("."), subject.split(".")
    for place, want in enumerate(wanted):
        if place >= len(tokens):
            return False
        if want == ">":
            return True
        if want not in ("*", tokens[place]):
            return False
    return len(wanted) == len(tokens)


def overlap(one: str, other: str) -> bool:
    """True if some subject is covered by both patterns."""
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if ">" in (left, right):
            return True
        if "*" not in (left, right) and left != right:
            return False
    return one.count(".") == other.count(".")


def is_literal(pattern: str) -> bool:
    return "*" not in pattern and ">" not in pattern


def is_valid(pattern: str) -> bool:
    tokens = pattern.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not re.search(r"\s", pattern)


class TransformError(Exception):
    """The destination of a transform means nothing; the message is the server's."""


class Transform(Struct, frozen=True):
    """A stream's `subject_transform`, ready to be applied."""

    source: str
    parts: tuple[Callable[[list[str]], str], ...]

    def apply(self, subject: str) -> str:
        """The subject under which the stream stores a message.

        That is `subject` itself where the source does not cover it, or where it has a wildcard as a token:
        the server takes such a message, and its transform has an error for it, which it ignores.
        """
        if not covers(self.source, subject) or not {"*", ">"}.isdisjoint(subject.split(".")):
            return subject
        tokens = subject.split(".")
        places = [place for place, token in enumerate(self.source.split(".")) if token == "*"]
        wild = [tokens[place] for place in places]
        rest = tokens[self.source.count(".") :] if self.source.endswith(">") else []
        return ".".join([part(wild) for part in self.parts] + rest)


def transform(source: str, destination: str) -> Transform:
    """Understands `wildcard(n)`, `partition(count,n…)` and a `>` at both ends. Raises `TransformError`."""
    wildcards = source.split(".").count("*")
    tokens = destination.split(".")
    if tokens[-1] == ">":
        tokens.pop()
    return Transform(source, tuple(_part(token, wildcards) for token in tokens))


def _part(token: str, wildcards: int) -> Callable[[list[str]], str]:
    found = re.fullmatch(r"\{\{\s*(\w+)\(([\d,\s]*)\)\s*\}\}", token)
    if found is None:
        return lambda _: token
    name, numbers = found[1], [int(number) for number in found[2].split(",")]
    count, indices = (numbers[0], numbers[1:]) if name == "partition" else (0, numbers)
    if not indices or not all(1 <= index <= wildcards for index in indices):
        raise TransformError(f"invalid mapping destination: wildcard index out of range in {token}")
    match name:
        case "wildcard":
            return lambda wild: wild[indices[0] - 1]
        case "partition":
            return lambda wild: str(_fnv1a("".join(wild[index - 1] for index in indices)) % count)
        case _:
            raise TransformError(f"invalid mapping destination: unknown function in {token}")


def _fnv1a(text: str) -> int:
    state = 0x811C9DC5
    for byte in text.encode():
        state = ((state ^ byte) * 0x01000193) & 0xFFFFFFFF
    return state
