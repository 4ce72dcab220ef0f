"""A custom signature: the documented vectors of other senders, and no header that breaks requests."""

import asyncio
from typing import Any

import msgspec
import pytest

from actors.configuration.custom_signature import CustomSignature
from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.errors import InvalidPolicy
from actors.machine.event import Event
from actors.ports import Attempt
from angarium.delivery.http_exchange.transport import Failure, Request, Response, request_head
from angarium.delivery.sender import HttpSender

URL = "https://example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554"
    b"%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def configured(**members: Any) -> Policy:
    return parse(msgspec.json.encode({"url": URL} | members), strict=True)[0]


def problems(signature: Any, **members: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as refused:
        configured(signature=signature, **members)
    return refused.value.problems


class Wire:
    """A transport that keeps the headers that it was given."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    async def post(self, request: Request) -> Response | Failure:
        request_head(request)  # It refuses what would break a request.
        self.headers = dict(line.decode().split(": ", 1) for line in request.lines)
        return Response(status=200, headers=(), body=b"", latency_s=0.0, size=0)

    async def close(self) -> None: ...


def sent(policy: Policy, body: bytes, at: float = 0.0, event_id: str = "evt_1") -> dict[str, str]:
    """The headers of an attempt."""
    wire = Wire()
    event = Event(position=1, id=event_id, stored_at=0.0, body=body, type="order.created")
    attempt = Attempt(
        receiver="acme.billing",
        policy=policy,
        event=event,
        sequence=1,
        ordinal=1,
        may_start=lambda: True,
        shapings=(),
    )
    asyncio.run(HttpSender(wire, clock=lambda: at).send(attempt))
    return wire.headers


def test_the_signature_is_that_of_the_example_of_github() -> None:
    """docs.github.com, "Validating webhook deliveries"."""
    policy = configured(
        secrets=[],
        signature={
            "header": "X-Hub-Signature-256", "value": "sha256={hmac}", "secret": "It's a Secret to Everybody",
        },
    )  # fmt: skip
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert sent(policy, b"Hello, World!")["X-Hub-Signature-256"] == signature


def test_the_signature_is_that_of_the_example_of_slack() -> None:
    """api.slack.com, "Verifying requests from Slack"."""
    policy = configured(signature={
        "header": "X-Slack-Signature", "value": "v0={hmac}", "content": "v0:{timestamp}:{body}",
        "timestamp_header": "X-Slack-Request-Timestamp", "secret": "8f742231b10e8888abcd99yyyzzz85a5",
    })  # fmt: skip
    headers = sent(policy, SLACK_BODY, at=1531420618.9)
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert headers["X-Slack-Signature"] == signature
    assert headers["X-Slack-Request-Timestamp"] == "1531420618"


def test_the_signature_is_that_of_the_example_of_line() -> None:
    """developers.line.biz, "Verify webhook signature": the base64 of the body alone."""
    policy = configured(signature={
        "header": "x-line-signature", "encoding": "base64", "secret": "8c570fa6dd201bb328f1c1eac23a96d8",
    })  # fmt: skip
    body = b'{"destination":"U8e742f61d673b39c7fff3cecb7536ef0","events":[]}'
    assert sent(policy, body)["x-line-signature"] == "GhRKmvmHys4Pi8DxkF4+EayaH0OqtJtaZxgTD9fMDLs="


def test_the_signature_is_that_of_the_example_of_mux() -> None:
    """The tests of its SDKs: `t=,v1=` over timestamp, dot and body, which is the scheme of Stripe as well."""
    policy = configured(signature={
        "header": "mux-signature", "content": "{timestamp}.{body}", "value": "t={timestamp},v1={hmac}",
        "secret": "SuperSecret123",
    })  # fmt: skip
    signature = "t=1565125718,v1=854ece4c22acef7c66b57d4e504153bc512595e8e9c772ece2a68150548c19a7"
    assert sent(policy, b'{"test":"body"}', at=1565125718)["mux-signature"] == signature


def test_the_newest_secret_signs_as_in_the_example_of_svix() -> None:
    """docs.svix.com, "Verifying payloads manually": id, timestamp and body, in base64."""
    policy = configured(
        secrets=[SECRET, "whsec_" + "A" * 43],
        signature={
            "header": "svix-signature", "content": "{id}.{timestamp}.{body}", "value": "v1,{hmac}",
            "encoding": "base64",
        },
    )  # fmt: skip
    headers = sent(policy, b'{"test": 2432232314}', 1614265330, "msg_p5jXN8AQM9LWM0D4loKWxJek")
    assert headers["svix-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-signature"].startswith("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,")


def test_the_custom_signature_is_over_the_body_that_is_sent() -> None:
    signature = {"header": "x-sig", "secret": "key"}
    raw = sent(configured(signature=signature), b"{}")["x-sig"]
    enveloped = sent(configured(signature=signature, format="envelope"), b"{}")["x-sig"]
    assert raw != enveloped


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
def test_the_key_may_be_longer_than_a_block(algorithm: str) -> None:
    import hmac

    policy = configured(signature={"header": "x-sig", "algorithm": algorithm, "secret": "ä" * 256})
    expected = hmac.digest(("ä" * 256).encode(), b"{}", algorithm).hex()
    assert sent(policy, b"{}")["x-sig"] == expected


def test_a_header_of_the_receiver_never_replaces_its_signature() -> None:
    """A node that is lenient with headers leaves the receiver's own one out."""
    signature = CustomSignature(header="X-Sig", secret="key")
    policy = Policy(url=URL, headers={"x-sig": "forged", "X_Sig": "forged"}, signature=signature)
    assert [name for name in sent(policy, b"{}") if name.lower() in ("x-sig", "x_sig")] == ["X-Sig"]


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"content": "{body}{url}"}, "signature.content: unknown placeholder {url}; the placeholders are"),
        ({"value": "{hmac}{body}"}, "signature.value: unknown placeholder {body}"),
        ({"content": "{timestamp}"}, "signature.content: must contain {body}"),
        ({"value": "v1"}, "signature.value: must contain {hmac}"),
        ({"content": "{body}{body}"}, "signature.content: {body} may occur only once"),
        ({"value": "{hmac}}"}, "signature.value: has a brace that belongs to no placeholder"),
        ({"value": "{hmac}\r\nx: y"}, "signature.value: only printable ASCII characters"),
        ({"content": "{body}ä"}, "signature.content: only printable ASCII characters"),
        ({"content": "{body}" + "x" * 251}, "signature.content: must be a string of 0 to 256 characters"),
        ({"algorithm": "md5"}, "signature.algorithm: must be sha1, sha256 or sha512"),
        ({"encoding": "base32"}, "signature.encoding: must be base64 or hex"),
        ({"secret": ""}, "signature.secret: must be a string of 1 to 256 characters"),
        ({"colour": 1}, "signature.colour: unknown member"),
        ({"header": "a b"}, "signature.header: 'a b' is not an HTTP header name"),
        ({"header": "Webhook-Signature"}, "signature.header: Webhook-Signature is set by Angarium itself"),
        ({"header": "angarium-x"}, "signature.header: angarium-x is set by Angarium itself"),
        ({"header": "Content-Type"}, "signature.header: Content-Type is set by Angarium itself"),
        ({"header": "webhook_id"}, "signature.header: webhook_id is set by Angarium itself"),
        ({"header": "te"}, "signature.header: te is set by Angarium itself, or a header of the connection"),
        ({"timestamp_header": "Host"}, "signature.timestamp_header: Host is set by Angarium itself"),
        ({"timestamp_header": "X-SIG"}, "signature.timestamp_header: X-SIG is given twice"),
        ({"timestamp_header": "x_sig"}, "signature.timestamp_header: x_sig is given twice"),
    ],
)
def test_a_signature_that_cannot_be_used_is_refused_by_its_member(
    members: dict[str, Any], problem: str
) -> None:
    [found] = problems({"header": "x-sig", "secret": "key"} | members)
    assert found.startswith(problem)


def test_a_signature_without_a_key_is_refused_with_the_remedy() -> None:
    [found] = problems({"header": "x-sig"})
    assert found == "signature.secret: missing, and there are no secrets; give the key to sign with"
    [found] = problems({"header": "x-sig"}, secrets=["whsk_" + "A" * 43])
    assert found == (
        "signature.secret: missing, and the newest of secrets is no HMAC key; give the key to sign with"
    )


def test_a_signature_that_a_header_of_the_receiver_repeats_is_refused() -> None:
    [found] = problems({"header": "x-sig", "secret": "key"}, headers={"X-Sig": "a"})
    assert found == "signature.header: x-sig is given twice; choose another, or leave it out of headers"


def test_the_header_is_the_only_member_that_is_needed() -> None:
    assert problems({}) == ["signature.header: required, but missing"]
    assert configured(secrets=[SECRET], signature={"header": "x"}).signature == CustomSignature(header="x")


def test_the_key_is_never_shown() -> None:
    policy = configured(signature={"header": "x-sig", "secret": "open sesame"})
    wire = Wire()
    sender = HttpSender(wire)
    event = Event(position=1, id="evt_1", stored_at=0.0, body=b"{}")
    attempt = Attempt(
        receiver="acme.billing",
        policy=policy,
        event=event,
        sequence=1,
        ordinal=1,
        may_start=lambda: True,
        shapings=(),
    )
    asyncio.run(sender.send(attempt))
    assert "sesame" not in f"{policy} {policy.signature} {sender._prepared}"
    assert "sesame" not in f"{problems({'header': 'te', 'secret': 'open sesame', 'colour': 1})}"
