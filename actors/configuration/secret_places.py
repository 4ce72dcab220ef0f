"""The places of secrets in a configuration. While it is stored, sealed texts may stand there.

Masks, fingerprints, seals and lists of changes go by `SECRET_PLACES`. A new kind of secret is added there,
and in `masks.unmasked`. Pure.
"""

from collections.abc import Callable
from typing import Any

SECRET_PLACES: dict[str, tuple[str, ...]] = {
    "secrets": ("[]",),
    "old_secrets": ("[]", "secret"),
    "headers": ("*",),
    "signature": ("secret",),
    "pseudonym_key": (),
}
"""Paths of the texts that are secret, by member: `[]` is each entry of an array, `*` each member of an
object. The path of a member that is a secret itself is empty."""
SECRET_MEMBERS = frozenset(SECRET_PLACES)
"""Members of a configuration with secrets in them, which are never shown."""
SEALED_PREFIX = "sealed:"

Change = Callable[[str, str, str], str]
"""Takes a secret's member, its place in words, and its text; returns the text to put there."""


def is_sealed(text: object) -> bool:
    """True for a text that begins as sealed values do; only `streams.sealing.keys` can say that it is one."""
    return isinstance(text, str) and text.startswith(SEALED_PREFIX)


def with_secrets(members: dict[str, Any], change: Change) -> dict[str, Any]:
    """The members, with each secret text as `change` returns it.

    The member of a secret names it without its position (`secrets`, `headers.authorization`), its place also
    says that (`secrets[0]`). What is no text stays.
    """
    return {
        name: _changed(value, SECRET_PLACES[name], name, name, change) if name in SECRET_PLACES else value
        for name, value in members.items()
    }


def _changed(value: Any, path: tuple[str, ...], member: str, place: str, change: Change) -> Any:
    if not path:
        return change(member, place, value) if isinstance(value, str) else value
    step, rest = path[0], path[1:]
    match step, value:
        case "[]", list():
            return [
                _changed(each, rest, member, f"{place}[{index}]", change) for index, each in enumerate(value)
            ]
        case "*", dict():
            return {
                name: _changed(each, rest, f"{member}.{name.lower()}", f"{place}.{name[:64]}", change)
                for name, each in value.items()
            }
        case _, dict() if step in value:
            inner = _changed(value[step], rest, f"{member}.{step}", f"{place}.{step}", change)
            return value | {step: inner}
    return value
