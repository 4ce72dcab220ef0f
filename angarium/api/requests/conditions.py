"""Conditions of a request: `If-Match` and `If-None-Match`, whose entity-tags are revisions in the bucket."""

import re
from typing import TypeVar

from msgspec import Struct

from angarium.api.problems import ProblemRaised, result_of
from angarium.api.requests.headers import Headers, header
from angarium.operations.failures import NotDone

T = TypeVar("T")

NO_REVISION = 0
"""The revision of a configuration that does not exist."""
_NEVER = -1
_REVISION = re.compile(r'"([0-9]{1,18})"\Z')


class Condition(Struct, frozen=True):
    """The revision that a request is meant for. None is any; it must exist if `exists` is true."""

    revision: int | None = None
    exists: bool = False

    @property
    def is_given(self) -> bool:
        """True if the client stated a condition."""
        return self.revision is not None or self.exists


def condition(headers: Headers) -> Condition:
    """The condition of a change. Raises `ProblemRaised`."""
    match, none_match = header(headers, b"if-match"), header(headers, b"if-none-match")
    if match and none_match:
        raise ProblemRaised(400, "not-http", "send If-Match or If-None-Match, not both")
    if none_match:
        if none_match != "*":
            raise ProblemRaised(
                400, "not-http", "a change accepts only If-None-Match: *; for a revision, send If-Match"
            )
        return Condition(NO_REVISION)
    if match == "*":
        return Condition(exists=True)
    return Condition(_revision(match) if match else None)


def is_known(headers: Headers, revision: int) -> bool:
    """True if the client already has that revision, so that 304 is enough."""
    etags = header(headers, b"if-none-match")
    return any(each.strip().removeprefix("W/") in ("*", f'"{revision}"') for each in etags.split(","))


def result_if_met(outcome: T | NotDone, asked: Condition) -> T:
    """The result of a change. Raises `ProblemRaised`, 412 if the condition does not hold."""
    if isinstance(outcome, NotDone) and outcome.kind == "conflict" and asked.is_given:
        raise _unmet(outcome.text)
    return result_of(outcome)


def _unmet(detail: str) -> ProblemRaised:
    """The answer if the condition does not hold."""
    return ProblemRaised(412, "precondition-failed", detail)


def etag_header(revision: int) -> dict[str, str]:
    """The header with the entity-tag of a revision."""
    return {"etag": f'"{revision}"'}


def _revision(text: str) -> int:
    """The revision in an entity-tag; for a weak or foreign tag, a revision that never exists."""
    if "," in text:
        raise ProblemRaised(400, "not-http", "If-Match accepts a single entity-tag")
    found = _REVISION.match(text)
    return int(found[1]) if found else _NEVER
