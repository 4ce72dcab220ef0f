"""Texts and objects that the descriptions of all operations use: problems, parameters, examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    Example,
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    Parameter,
    Reference,
    RequestBody,
    Schema,
)

from angarium.api.openapi.configuration import REFERENCE
from angarium.api.problems import HIDDEN, MEDIA_TYPE, TITLES, TYPES, Problem

JSON = "application/json"
_STATUSES = {
    400: ("not-http", "the header idempotency-key occurs several times; send one"),
    401: ("unauthorized", "send Authorization: Bearer with a valid token"),
    404: ("not-found", HIDDEN),
    408: ("timeout", "the body arrived too slowly"),
    409: (
        "conflict",
        "acme.billing was changed at the same moment by another user; check it, then try again",
    ),
    412: (
        "precondition-failed",
        "acme.billing was changed by another user (revision 8, not 7); check it, then try again",
    ),
    413: ("too-large", "the body may have at most 262144 bytes; send less, or a link to it"),
    415: ("unsupported", "bodies with a content-encoding are not accepted; send it without"),
    422: ("invalid", "types that begin with angarium. are Angarium's own; choose another"),
    428: (
        "precondition-required",
        "the request would lose rate: 10/second → default. Repeat these members, or send If-Match with "
        "the ETag that you saw",
    ),
    429: ("rate", "the token may publish 100 events a second"),
    503: ("unavailable", "NATS cannot be reached; send it again"),
}


def problems(*statuses: int) -> dict[int, ResponseSpec]:
    """The problems that an operation may return, each with an example; always 400, 401, 404, 422 and 503."""
    return {status: _problem(status) for status in sorted({400, 401, 404, 422, 503, *statuses})}


def _problem(status: int) -> ResponseSpec:
    name, detail = _STATUSES[status]
    value = {"type": TYPES + name, "title": TITLES[name], "status": status, "detail": detail}
    return ResponseSpec(
        Problem, generate_examples=False, description=TITLES[name], media_type=MEDIA_TYPE,
        examples=[Example(summary=TITLES[name], value=value)],
    )  # fmt: skip


def result(data: Any, description: str, example: object) -> ResponseSpec:
    """The answer of a successful operation."""
    return ResponseSpec(
        data, generate_examples=False, description=description,
        examples=[Example(summary=description, value=example)],
    )  # fmt: skip


def header_parameter(name: str, description: str, example: str) -> Parameter:
    """A header that a request may have."""
    return Parameter(
        name=name, param_in="header", required=False, description=description,
        schema=Schema(type=OpenAPIType.STRING), example=example,
    )  # fmt: skip


def operation(body: RequestBody | None = None, parameters: Sequence[Parameter] = ()) -> type[Operation]:
    """The class of an operation whose body, or some of whose parameters, are read by the route itself."""

    @dataclass
    class Described(Operation):
        def __post_init__(self) -> None:
            self.request_body = body or self.request_body
            self.parameters = [*(self.parameters or []), *parameters]

    return Described


def body(
    description: str,
    content: Mapping[str, object],
    schema: str = "",
    *,
    items: int = 0,
    required: bool = True,
) -> RequestBody:
    """The body of a request that is read by the route itself, with an example for each media type.

    `schema`: the name of its schema among the components; with `items`, that of each element of an array of
    at most `items` elements.
    """
    one = Reference(ref=REFERENCE.format(name=schema)) if schema else Schema()
    many = Schema(type=OpenAPIType.ARRAY, items=one, max_items=items) if items else one
    return RequestBody(
        description=description,
        required=required,
        content={
            media: OpenAPIMediaType(
                schema=many if media == JSON else one, examples={"example": Example(value=example)}
            )
            for media, example in content.items()
        },
    )
