"""Receivers as a document declares them: `{"receivers": {"acme.billing": {…}}}`, in JSON or TOML.

Its problems are reported with JSON pointers (RFC 6901), for all receivers at once.
"""

import re
from typing import Any

import msgspec

from actors.allowed_values import unknown_member
from actors.errors import BadInput, InvalidPolicy
from actors.ids import split_receiver

RECEIVERS_MAX = 10_000
DOCUMENT_MAX = 64 << 20
"""Bytes: the largest number of configurations, at a tenth of their largest size."""
PROBLEMS_SHOWN_MAX = 16

_INDEX = re.compile(r"\[(\d+)\]")


def read_declared(text: bytes, *, toml: bool) -> dict[str, dict[str, Any]]:
    """The configurations by receiver. Raises InvalidPolicy, with a problem for each invalid one."""
    if len(text) > DOCUMENT_MAX:
        raise InvalidPolicy([f"is {len(text)} bytes, at most {DOCUMENT_MAX}; split it by tenant"])
    document = _decoded(text, toml=toml)
    if not isinstance(document, dict) or not isinstance(document.get("receivers"), dict):
        raise InvalidPolicy([f"/receivers: missing; write {_EXAMPLE[toml]}"])
    others = [each for each in document if each != "receivers"]
    problems = [f"/{token(each)}: {unknown_member(each, ('receivers',))}" for each in others]
    receivers: dict[str, Any] = document["receivers"]
    if len(receivers) > RECEIVERS_MAX:
        problems.append(f"/receivers: {len(receivers)} of them, at most {RECEIVERS_MAX}; split it by tenant")
    for name, members in receivers.items():
        try:
            split_receiver(name)
        except BadInput as error:
            problems.append(f"/receivers/{token(name)}: {error}")
        else:
            if not isinstance(members, dict):
                problems.append(f"/receivers/{token(name)}: must be an object")
    if problems:
        raise InvalidPolicy(shown_problems(problems))
    return receivers


_EXAMPLE = {
    False: '{"receivers": {"acme.billing": {"url": "https://…"}}}',
    True: '[receivers."acme.billing"] and url = "https://…" below it',
}


def _decoded(text: bytes, *, toml: bool) -> Any:
    try:
        if toml:
            # Times are texts here, as in JSON.
            return msgspec.to_builtins(msgspec.toml.decode(text))
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPolicy([f"not valid {'TOML' if toml else 'JSON'} ({error})"]) from None


def problems_with_pointers(name: str, error: BadInput) -> list[str]:
    """The problems of one receiver's configuration, each with its pointer."""
    problems = error.problems if isinstance(error, InvalidPolicy) else [str(error)]
    return [f"/receivers/{token(name)}{pointer(each)}: {text_of(each)}" for each in problems]


def pointer(problem: str) -> str:
    """The pointer to the member that a problem of `actors.configuration` begins with."""
    path, colon, _ = problem.partition(": ")
    if not colon or path == "configuration" or " " in path:
        return ""
    if path.startswith("headers."):
        return f"/headers/{token(path.removeprefix('headers.'))}"
    return "/" + _INDEX.sub(r"/\1", path.replace("[...]", "")).replace(".", "/")


def text_of(problem: str) -> str:
    """A problem without the member that it begins with."""
    return problem if pointer(problem) == "" else problem.partition(": ")[2]


def token(name: str) -> str:
    """A name as a token of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def shown_problems(problems: list[str]) -> list[str]:
    """The first of many problems, and the number of the others."""
    more = len(problems) - PROBLEMS_SHOWN_MAX
    return [*problems[:PROBLEMS_SHOWN_MAX], f"and {more} more"] if more > 0 else problems
