"""Seals and opens all secrets of a configuration.

A secret that the present key has sealed keeps its sealed text. So a change of another member changes no
sealed text until the key is replaced, and a process without a key keeps what is stored.
"""

from collections import Counter, defaultdict
from typing import Any

from msgspec import Struct

from actors.configuration.secret_places import is_sealed, with_secrets
from streams.sealing.keys import CannotOpen, Keys, key_of

UNENCRYPTED = ""
"""Stands for the key of secrets that are not sealed."""


class OpenedMembers(Struct, frozen=True):
    """The members with opened secrets; `problems`: why others stay sealed, each with its place.

    `needs_key`: all of those open once this process has further keys.
    """

    members: dict[str, Any]
    problems: tuple[str, ...]
    needs_key: bool


class SealedMembers(Struct, frozen=True):
    """The members as they may be stored.

    - `problems`: sealed texts that are neither stored nor can be opened.
    - `unencrypted`: places of secrets that are new and not sealed, because there is no key.
    """

    members: dict[str, Any]
    problems: tuple[str, ...]
    unencrypted: tuple[str, ...]


def opened(keys: Keys, receiver: str, members: dict[str, Any]) -> OpenedMembers:
    """Open what these keys can open."""
    problems: list[str] = []
    damaged = False

    def open_one(member: str, place: str, text: str) -> str:
        nonlocal damaged
        if not is_sealed(text):
            return text
        match keys.open(receiver, member, text):
            case CannotOpen(why, needs_key):
                problems.append(f"{place}: {why}")
                damaged |= not needs_key
                return text
            case found:
                return found

    found = with_secrets(members, open_one)
    return OpenedMembers(found, tuple(problems), needs_key=bool(problems) and not damaged)


def sealed(keys: Keys, receiver: str, members: dict[str, Any], stored: dict[str, Any]) -> SealedMembers:
    """Seal all secrets, if there is a key; `stored`: the members that they replace, as they are stored."""
    there = _stored_texts(keys, receiver, stored)
    problems: list[str] = []
    unencrypted: list[str] = []

    def seal_one(member: str, place: str, text: str) -> str:
        known = there[member]
        if is_sealed(text):
            found = text if text in known.values() else keys.open(receiver, member, text)
            if isinstance(found, CannotOpen):
                problems.append(f"{place}: {found.why}")
            return text
        before = known.get(text)
        if not keys:
            if before != text:
                unencrypted.append(place)
            return text
        if before is not None and key_of(before) == keys.present:
            return before
        return keys.seal(receiver, member, text)

    return SealedMembers(with_secrets(members, seal_one), tuple(problems), tuple(unencrypted))


def keys_used(members: dict[str, Any]) -> Counter[str]:
    """The number of secrets by the ids of their keys; those that are not sealed under `UNENCRYPTED`."""
    found = Counter[str]()

    def count(_: str, __: str, text: str) -> str:
        found[key_of(text) if is_sealed(text) else UNENCRYPTED] += 1
        return text

    with_secrets(members, count)
    return found


def _stored_texts(keys: Keys, receiver: str, stored: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The stored texts of each member, by what they mean as far as the keys can open them."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)

    def note(member: str, _: str, text: str) -> str:
        found = keys.open(receiver, member, text) if is_sealed(text) else text
        texts[member][text if isinstance(found, CannotOpen) else found] = text
        return text

    with_secrets(stored, note)
    return texts
