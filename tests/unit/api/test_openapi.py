"""The description of configurations and names, compared with what is accepted and refused."""

import base64
import re
from typing import Any

import msgspec
import pytest

from actors.configuration.custom_signature import CustomSignature
from actors.configuration.parsing import parse
from actors.configuration.policy import (
    Adaptive,
    AlertSettings,
    BatchLimits,
    Offline,
    OldSecret,
    Policy,
    Rate,
    Retry,
)
from actors.configuration.transform import Transform
from actors.errors import InvalidName, InvalidPolicy
from actors.ids import check_tenant, check_type, split_receiver
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.facts import AttemptFailed
from actors.machine.outcome import Answered
from actors.machine.scheduling.view import View
from actors.machine.state import State
from actors.status import Head, inspect
from angarium.api.app import routes
from angarium.api.openapi.configuration import (
    CONFIGURATION,
    DESCRIPTIONS,
    PATCH,
    SHOWN,
    configuration_schemas,
)
from angarium.api.openapi.document import PATH_PARAMETERS, completed

SCHEMAS = configuration_schemas()
MEMBERS = SCHEMAS[CONFIGURATION]["properties"]
URL = "https://example.com/"
BASE: dict[str, dict[str, float]] = {"Retry": {"base_s": 0.05, "cap_s": 432000}, "Rate": {"limit": 1}}
"""Members of nested objects that make room for the bounds of the others."""


def is_taken(**members: Any) -> bool:
    try:
        parse(msgspec.json.encode({"url": URL} | members), strict=True)
    except InvalidPolicy:
        return False
    return True


MEMBER_OF = {"AlertSettings": "alerts"}
"""Members of a configuration whose objects have another name."""


def test_every_member_is_described() -> None:
    structs = (
        Rate, BatchLimits, Retry, Offline, Adaptive, AlertSettings, OldSecret, CustomSignature, Transform,
    )  # fmt: skip
    nested = {f"{each.__name__}.{name}" for each in structs for name in each.__struct_fields__}
    assert {*DESCRIPTIONS} == {*Policy.__struct_encode_fields__} | nested
    for name in (CONFIGURATION, PATCH, SHOWN):
        assert {*SCHEMAS[name]["properties"]} == {*Policy.__struct_encode_fields__}


def test_the_bounds_of_the_description_hold() -> None:
    checked = 0
    for name, schema in MEMBERS.items():
        for number, fits in bounds(schema):
            assert is_taken(**{name: number}) == fits, (name, number)
            checked += 1
    for name in ("Rate", "Retry", "Offline", "AlertSettings"):
        for member, schema in SCHEMAS[name]["properties"].items():
            for number, fits in bounds(schema):
                members = BASE.get(name, {}) | {member: number}
                assert is_taken(**{MEMBER_OF.get(name, name.lower()): members}) == fits, (
                    name,
                    member,
                    number,
                )
                checked += 1
    assert checked > 30


def bounds(schema: Any) -> list[tuple[float, bool]]:
    """The numbers at the bounds of a member, which fit, and those beyond, which do not."""
    found: list[tuple[float, bool]] = []
    for each in schema.get("anyOf", [schema]):
        step = 1 if each.get("type") == "integer" else 1e-7
        if (least := each.get("minimum")) is not None:
            found += [(least, True), (least - step, False)]
        if (most := each.get("maximum")) is not None:
            found += [(most, True), (most + step * 1e6, False)]
    return found


@pytest.mark.parametrize("rate", ["10/second", "0.5/s", "300/min", "5000/h", "5", "5/day", "x/s", "/s"])
def test_a_rate_is_written_as_the_pattern_says(rate: str) -> None:
    text, *_ = MEMBERS["rate"]["anyOf"]
    assert bool(re.search(text["pattern"], rate)) == is_taken(rate=rate)


@pytest.mark.parametrize("length", [23, 24, 32, 64, 65])
def test_a_secret_is_written_as_the_pattern_says(length: int) -> None:
    secret = "whsec_" + base64.b64encode(b"x" * length).decode()
    assert bool(re.search(MEMBERS["secrets"]["items"]["pattern"], secret)) == is_taken(secrets=[secret])


@pytest.mark.parametrize(
    "text",
    ["acme", "a" * 64, "a" * 65, "_x", "-x", "9x", "a.b", "a-b_c", "", "a..b", "order.created", "é", "a\n",
     ".".join("a" * 16), ".".join("a" * 17)],
)  # fmt: skip
def test_parts_of_paths_are_made_of_what_their_patterns_say(text: str) -> None:
    checks: dict[str, Any] = {
        "tenant": check_tenant, "name": lambda name: split_receiver(f"acme.{name}"), "type": check_type,
    }  # fmt: skip
    for parameter, check in checks.items():
        pattern = PATH_PARAMETERS[parameter]["pattern"].removesuffix("$") + r"\Z"
        try:
            check(text)
        except InvalidName:
            assert not re.search(pattern, text), parameter
        else:
            assert re.search(pattern, text), parameter


def test_the_state_of_a_receiver_has_all_its_members_described() -> None:
    schemas = completed(routes().openapi_schema.to_schema())["components"]["schemas"]
    schema = schemas["ReceiverState"]
    last = AttemptFailed(receiver="acme.billing", events=(), at=1.0, attempt=1, status=503)
    limit, rates = RateLimit(1.0, 1, (RateLimit(10.0, 10),)), (Rate(limit=1, margin=0.9), Rate(limit=10))
    state = State(receiver="acme.billing", last=last, limit=limit, bucket=Bucket(1.0, 1.0, 1, (1.0,)))
    answer = Answered(status=503, headers=(("x-a", "b"),), body=b"no", latency_ms=1.0)
    head = Head(position=9, sequence=3, id="e3", stored_at=1.0)
    shown = inspect(
        state, Policy(url=URL, rates=rates), View(), 2.0, shard=7, node="n1",
        queued=1, backlog=1, head=head, last_answer=answer, problems=[],
    )  # fmt: skip
    assert {*shown} | {"health", "at", "recorded_at", "ledger"} == {*schema["properties"]}
    assert "required" not in schema
    for member in ("head", "bucket", "last_attempt", "last_response", "counters"):
        described = schema["properties"][member]
        (reference,) = [each["$ref"] for each in described.get("anyOf", [described]) if "$ref" in each]
        properties = schemas[reference.rpartition("/")[2]]["properties"]
        assert {*msgspec.to_builtins(shown)[member]} == {*properties}, member
    for name in ("ReceiverHealth", "LedgerLag"):
        assert name in schemas


def test_every_reference_of_the_description_leads_to_a_schema() -> None:
    document = completed(routes().openapi_schema.to_schema())
    wanted = re.findall(r'"#/components/schemas/(\w+)"', msgspec.json.encode(document).decode())
    assert {*wanted} <= {*document["components"]["schemas"]}
