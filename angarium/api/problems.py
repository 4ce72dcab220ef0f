"""Problems (RFC 9457): every error of the API, in one place.

A route raises `ProblemRaised`, or `result_of` raises it for an operation that was not done. A resource that a
token may not see and one that does not exist get the same answer.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, assert_never

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap
from msgspec import Struct

from actors.errors import AngariumError
from angarium.operations.configurations.put import WOULD_LOSE_CODE
from angarium.operations.control_requests.ask import UNAVAILABLE_CODE, UNKNOWN_CODE
from angarium.operations.declarations.declared import pointer, text_of
from angarium.operations.failures import Kind, NotDone, not_done
from angarium.rate_limited_log import RateLimitedLog

MEDIA_TYPE = "application/problem+json"
TYPES = "urn:angarium:problem:"
RETRY_AFTER_S = 1
"""The `Retry-After` of temporary errors. It is short: most of them end at once, and clients back off."""
HIDDEN = "there is nothing here that this token may see"

BROKEN_BURST = 8
"""Defects that are logged one by one, each with its traceback, before there is one line a second."""
_broken = RateLimitedLog(logging.getLogger(__name__), "api.broken", burst=BROKEN_BURST, level=logging.ERROR)

T = TypeVar("T")


class Fault(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One error: in a member of the body (`pointer`, RFC 6901), a header, or a parameter."""

    detail: str
    pointer: str | None = None
    header: str | None = None
    parameter: str | None = None


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of every error."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()


class ProblemRaised(AngariumError):
    """The answer to a request that fails: a problem, and its headers."""

    def __init__(
        self, status: int, name: str, detail: str, *, errors: tuple[Fault, ...] = (), **headers: str
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            type=TYPES + name, title=TITLES[name], status=status, detail=_sentence(detail), errors=errors
        )
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


TITLES = {
    "not-http": "Malformed request",
    "not-json": "Malformed JSON",
    "unauthorized": "No valid token",
    "not-found": "Not found",
    "method-not-allowed": "Method not allowed",
    "timeout": "Request timeout",
    "conflict": "Conflict with another request",
    "replay-unfinished": "Another replay is unfinished",
    "redrive-unfinished": "Another redrive is unfinished",
    "refused": "Not possible in the current state",
    "precondition-failed": "Precondition failed",
    "precondition-required": "Precondition required",
    "too-large": "Too large",
    "unsupported": "Unsupported media type",
    "invalid": "Invalid request",
    "rate": "Rate limit exceeded",
    "headers": "Too many headers",
    "internal": "Internal error",
    "unavailable": "Unavailable",
    "full": "Stream is full",
}
"""The kinds of problems: the last part of `type`, and the title."""


def hidden() -> ProblemRaised:
    """The answer for a resource that does not exist, or that the token may not see."""
    return ProblemRaised(404, "not-found", HIDDEN)


def not_found(detail: str) -> ProblemRaised:
    """The answer for a resource that does not exist, if the token may know that."""
    return ProblemRaised(404, "not-found", detail)


def invalid(*errors: Fault) -> ProblemRaised:
    """The answer to an invalid request, with all its errors."""
    return ProblemRaised(422, "invalid", "; ".join(each.detail for each in errors), errors=errors)


def not_json(error: Exception) -> ProblemRaised:
    """The answer to a body that must be JSON and is not."""
    return ProblemRaised(400, "not-json", f"the body is not valid JSON ({error})")


def unavailable(detail: str) -> ProblemRaised:
    """The answer while something that the request needs cannot be reached."""
    return ProblemRaised(503, "unavailable", detail, retry_after=str(RETRY_AFTER_S))


def method_not_allowed(methods: Iterable[str]) -> ProblemRaised:
    """The answer to a method that a path does not have; OPTIONS is added by the framework."""
    known = {*methods}
    allowed = ", ".join(sorted(known - {"OPTIONS"} | ({"HEAD"} if "GET" in known else set())))
    return ProblemRaised(405, "method-not-allowed", f"use another method: {allowed}", allow=allowed)


def result_of(outcome: T | NotDone) -> T:
    """The result of an operation. Raises `ProblemRaised` if it was not done."""
    if isinstance(outcome, NotDone):
        raise problem_of(outcome)
    return outcome


def problem_of(failure: NotDone) -> ProblemRaised:
    """The answer that a failure of an operation means, without the remedy, which is for the command line."""
    status, name = _BY_CODE.get(failure.code) or _meaning(failure.kind)
    text = failure.text
    details = failure.problems or tuple(each for each in (text,) if pointer(each))
    errors = tuple(_fault(each) for each in details) if status in (422, 428) else ()
    if failure.code == WOULD_LOSE_CODE:
        remedy = "Repeat these members, or send If-Match with the ETag that you saw"
        text = f"the request would lose {'; '.join(details)}. {remedy}"
    retry = {"retry_after": str(RETRY_AFTER_S)} if status == 503 else {}
    return ProblemRaised(status, name, text, errors=errors, **retry)


_BY_CODE = {
    UNKNOWN_CODE: (404, "not-found"),
    UNAVAILABLE_CODE: (503, "unavailable"),
    "busy": (503, "unavailable"),
    "replay-unfinished": (409, "replay-unfinished"),
    "redrive-unfinished": (409, "redrive-unfinished"),
    "internal": (503, "unavailable"),
    "invalid_receiver": (422, "invalid"),
    WOULD_LOSE_CODE: (428, "precondition-required"),
}
"""Answers by the code that the owner of a receiver, or an operation, returned."""


def _meaning(kind: Kind) -> tuple[int, str]:
    match kind:
        case "invalid":
            return 422, "invalid"
        case "not_found":
            return 404, "not-found"
        case "conflict":
            return 409, "conflict"
        case "refused":
            return 409, "refused"
        case "too_large":
            return 413, "too-large"
        case "full":
            return 503, "full"
        case "not_allowed" | "unanswered" | "unavailable" | "unusable":
            return 503, "unavailable"
        case _:
            assert_never(kind)


def _fault(problem: str) -> Fault:
    """The fault in a sentence about a configuration, such as `rate.limit: must be …`, with its pointer."""
    return Fault(pointer=pointer(problem) or None, detail=text_of(problem))


def _sentence(text: str) -> str:
    """The text in one line, without control characters that a terminal would obey."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


# ---- from exceptions to problems


def problem_for(error: Exception, method: str, path: str) -> ProblemRaised:
    """The answer that an exception means.

    An unexpected error may quote anything, so its text goes to the log and not to the client.
    """
    match error:
        case ProblemRaised():
            return error
        case AngariumError():
            return problem_of(not_done(error))
        case ValidationException(extra=[*faults]) if faults:
            return invalid(*map(_parameter, faults))
        case HTTPException(status_code=status, detail=detail, headers=headers) if status < 500:
            return _problem_of_litestar(status, detail, headers or {})
        case _:
            _broken(error, method=method, path=path)
            return ProblemRaised(
                500, "internal", "this is a defect of Angarium; the log of the API says more"
            )


def _problem_of_litestar(status: int, detail: str, headers: Mapping[str, str]) -> ProblemRaised:
    """The answer to an error of Litestar's own: no such route or method, a body of the wrong type."""
    match status:
        case 400:
            return ProblemRaised(400, "not-http", detail)
        case 404:
            return hidden()
        case 405:
            return method_not_allowed(headers["allow"].split(", "))
        case 413:
            return ProblemRaised(413, "too-large", "the body is too large")
        case 415:
            return ProblemRaised(415, "unsupported", detail)
        case _:
            return ProblemRaised(422, "invalid", detail)


def _answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    raised = problem_for(error, request.method, request.url.path)
    return Response(
        content=msgspec.json.encode(raised.problem),
        status_code=raised.problem.status,
        media_type=MEDIA_TYPE,
        headers=raised.headers,
    )


_ALLOWED = {
    "status": "write a status, such as 503, or a class, such as 5xx",
    "cursor": "use the `next_cursor` of the previous page",
    "receiver": "write a name of 1 to 64 of A-Z a-z 0-9 _ -",
}
"""Allowed values of parameters, in words, since people cannot read their patterns."""


_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
_UNITS = {"str": "character", "array": "value"}
_EXPECTED = re.compile(
    r"Expected `(\w+)[^`]*`(?:, got| of length (?P<length>[<>]=)| (?P<bound>[<>]=)) ?(\S+)"
)
"""The sentence of msgspec about a value that does not fit: a type, a length or a bound."""


def _in_words(text: str) -> str | None:
    """The expected value in words; None if msgspec says something else."""
    if (expected := _EXPECTED.match(text)) is None:
        return None
    kind, limit = expected[1], expected[4].removesuffix(".0")
    most = {"<=": "at most", ">=": "at least"}
    if sign := expected["length"]:
        return f"must have {most[sign]} {limit} {_UNITS[kind]}{'s' * (limit != '1')}"
    if sign := expected["bound"]:
        return f"must be {most[sign]} {limit}"
    return f"must be {_KINDS[kind]}" if kind in _KINDS else None


def _parameter(fault: Any) -> Fault:
    """A parameter that does not fit its type, from Litestar's description."""
    key, detail = str(fault.get("key") or ""), str(fault.get("message"))
    if "matching regex" in detail:
        detail = f"{key}: {_ALLOWED[key]}"
    elif words := _in_words(detail):
        detail = f"{key}: {words}"
    return (
        Fault(header=key, detail=detail)
        if fault.get("source") == "header"
        else Fault(parameter=key, detail=detail)
    )


HANDLERS: ExceptionHandlersMap = {HTTPException: _answer, Exception: _answer}
