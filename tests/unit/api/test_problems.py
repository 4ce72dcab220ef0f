"""Problems: errors that a client prints are one line, without control characters."""

from typing import Annotated, Any

import msgspec
import pytest
from litestar.exceptions import ValidationException
from msgspec import Meta

from angarium.api.app import routes
from angarium.api.openapi.document import completed
from angarium.api.problems import Fault, ProblemRaised, problem_for


def test_a_detail_is_one_line_without_control_characters() -> None:
    refused = ProblemRaised(422, "invalid", "no type\x1b[2J\n  of that \x00 name\u202e")
    assert refused.problem.detail == "no type [2J of that name"


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, "abc", "must be a whole number"),
        (int | None, "abc", "must be a whole number"),
        (float, "abc", "must be a number"),
        (bool, "abc", "must be true or false"),
        (Annotated[int, Meta(ge=1)], "0", "must be at least 1"),
        (Annotated[int, Meta(le=1000)], "1001", "must be at most 1000"),
        (Annotated[float, Meta(ge=60)], "1", "must be at least 60"),
        (Annotated[float, Meta(le=2592000)], "2592001", "must be at most 2592000"),
        (Annotated[str, Meta(min_length=1)], "", "must have at least 1 character"),
        (Annotated[str, Meta(max_length=64)], "a" * 65, "must have at most 64 characters"),
        (Annotated[list[str], Meta(max_length=1)], ["a", "b"], "must have at most 1 value"),
    ],
)
def test_a_parameter_that_does_not_fit_is_described_in_words(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(value, kind, strict=False)
    fault = {"key": "limit", "source": "query", "message": str(error.value)}
    (found,) = problem_for(ValidationException(extra=[fault]), "GET", "/").problem.errors
    assert found == Fault(parameter="limit", detail=f"limit: {words}")


def test_every_parameter_with_a_pattern_is_refused_in_words() -> None:
    described = completed(routes().openapi_schema.to_schema())["paths"].values()
    operations = (each for path in described for each in path.values() if isinstance(each, dict))
    parameters = [each for operation in operations for each in operation.get("parameters", ())]
    named = {
        each["name"] for each in parameters if each["in"] == "query" and "pattern" in str(each["schema"])
    }
    assert {"cursor", "receiver", "status"} <= named
    for name in named:
        fault = {"key": name, "source": "query", "message": "Expected `str` matching regex '^x$'"}
        (found,) = problem_for(ValidationException(extra=[fault]), "GET", "/").problem.errors
        assert "regex" not in found.detail
