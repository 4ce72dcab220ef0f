"""An attempt has the headers of the wire format, and its end becomes an outcome."""

import asyncio
import base64
import hmac
import json
import random
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from actors.configuration.policy import OldSecret, Policy, Rate, Retry
from actors.machine.backoff import backoff_s
from actors.machine.event import Event
from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.ports import Attempt
from angarium import __version__
from angarium.delivery import sender
from angarium.delivery.http_exchange.transport import Failure, FailureKind, Request, Response, request_head
from angarium.delivery.sender import HttpSender, next_attempt_s

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + "A" * 43
POLICY = Policy(url="https://example.com/hook", secrets=(SECRET,))
EVENT = Event(position=7, id="evt_1", stored_at=0.0, body=b'{"a": 1}', type="order.created")
TRACE = "0af7651916cd43dd8448eb211c80319c"
OK = Response(status=200, headers=(("x", "y"),), body=b"ok", latency_s=0.25, size=100)


def signed(content: bytes) -> str:
    """Signs with the standard library alone."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    return "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()


class Wire:
    """A transport that keeps what it was given."""

    def __init__(self, outcome: Response | Failure = OK) -> None:
        self.outcome = outcome
        self.requests: list[Request] = []

    async def post(self, request: Request) -> Response | Failure:
        self.requests.append(request)
        return self.outcome

    async def close(self) -> None: ...


class Post:
    """One sender over such a transport, with a clock that stands still."""

    def __init__(self, outcome: Response | Failure = OK) -> None:
        self.wire = Wire(outcome)
        self.now = 1614265330.9
        self.sender = HttpSender(self.wire, clock=lambda: self.now, ids=random.Random(1))

    def send(self, event: Event = EVENT, policy: Policy = POLICY, **fields: Any) -> Outcome:
        attempt: dict[str, Any] = {
            "receiver": "acme.billing",
            "policy": policy,
            "event": event,
            "sequence": 41,
            "ordinal": 3,
            "may_start": lambda: True,
            "shapings": (),
        }
        return asyncio.run(self.sender.send(Attempt(**(attempt | fields))))

    def headers(self, event: Event = EVENT, policy: Policy = POLICY, **fields: Any) -> dict[str, str]:
        """The headers of what is sent, none of them twice."""
        self.send(event, policy, **fields)
        return self.headers_of(-1)

    def headers_of(self, index: int) -> dict[str, str]:
        request = self.wire.requests[index]
        request_head(request)
        pairs = [line.decode("latin-1").split(": ", 1) for line in request.lines]
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)


def event(**fields: Any) -> Event:
    return msgspec.structs.replace(EVENT, **fields)


def policy(**fields: Any) -> Policy:
    return msgspec.structs.replace(POLICY, **fields)


@pytest.mark.parametrize(
    ("members", "failures", "age_s", "expected"),
    [
        ({}, 0, 0, "2"),
        ({}, 1, 0, "4"),
        ({}, 11, 0, "3600"),
        ({"retry": Retry(base_s=0.05)}, 0, 0, "1"),
        ({"retry": Retry(base_s=0.05)}, 5, 0, "2"),
        ({"retry": Retry(max_attempts=3)}, 1, 0, "4"),
        ({"retry": Retry(max_attempts=3)}, 2, 0, None),
        ({"retry": Retry(max_attempts=1)}, 0, 0, None),
        ({"retry": Retry(max_age_s=60)}, 0, 59, "1"),
        ({"retry": Retry(max_age_s=60)}, 0, 60, None),
        ({"retry": Retry(max_age_s=60)}, 9, 50, "10"),
        ({"rates": (Rate(limit=6, per="hour"),)}, 0, 0, "600"),
        ({"rates": (Rate(limit=10),)}, 2, 0, "8"),
    ],
)
def test_each_attempt_has_the_longest_time_to_the_next_one(
    members: dict[str, Any], failures: int, age_s: float, expected: str | None
) -> None:
    post = Post()
    late = event(stored_at=post.now - age_s)
    headers = post.headers(late, policy(**members), failures=failures)
    assert headers.get("angarium-next-attempt-s") == expected


@given(st.floats(0.05, 86400), st.floats(0.05, 432000), st.integers(0, 70), st.floats(0, 1, exclude_max=True))
def test_no_delay_is_longer_than_what_was_told(
    base_s: float, cap_s: float, failures: int, spread: float
) -> None:
    told = next_attempt_s(policy(retry=Retry(base_s=base_s, cap_s=cap_s)), failures)
    assert told is not None
    assert backoff_s(base_s, cap_s, failures + 1, spread) <= told


def test_the_next_attempt_also_waits_for_a_token_of_the_limit_in_force() -> None:
    """A receiver may have allowed less in its handshake than its configuration."""
    for failures, expected in ((0, "60"), (1, "60"), (11, "3600")):
        headers = Post().headers(event(stored_at=1_700_000_000.0), failures=failures, token_s=60.0)
        assert headers["angarium-next-attempt-s"] == expected


def test_a_ping_has_no_time_of_a_next_attempt() -> None:
    assert "angarium-next-attempt-s" not in Post().headers(sequence=None)


def test_the_headers_of_the_wire_format() -> None:
    post = Post()
    headers = post.headers(event(stored_at=post.now))
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", headers.pop("traceparent"))
    assert headers == {
        "webhook-id": "evt_1",
        "webhook-timestamp": "1614265330",
        "webhook-signature": signed(b'evt_1.1614265330.{"a": 1}'),
        "angarium-sequence": "41",
        "angarium-signature": signed(b'evt_1.41.{"a": 1}'),
        "angarium-event": "order.created",
        "angarium-attempt": "3",
        "angarium-next-attempt-s": "2",
        "content-type": "application/json",
        "user-agent": f"Angarium/{__version__}",
    }


def test_the_request_is_the_event_as_published_under_the_receivers_terms() -> None:
    post = Post()
    may_start = lambda: False  # noqa: E731  # The very object is to come through.
    post.send(policy=policy(timeout_s=7, url="http://[::1]:81/a?b"), may_start=may_start)
    (request,) = post.wire.requests
    assert request.body is EVENT.body
    assert request.timeout_s == 7
    assert request.may_start is may_start
    assert request.target.origin == "http://[::1]:81"
    assert request.target.path == "/a?b"


def test_a_repeated_attempt_differs_in_what_is_its_own_alone() -> None:
    post = Post()
    first = post.headers(ordinal=1)
    post.now += 3600
    second = post.headers(ordinal=2)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"webhook-timestamp", "webhook-signature", "angarium-attempt", "traceparent"}


def test_an_event_in_a_format_is_signed_as_it_is_sent_and_the_same_on_each_attempt() -> None:
    post, structured = Post(), policy(format="cloudevents-structured")
    first = post.headers(policy=structured, ordinal=1)
    body = post.wire.requests[0].body
    assert json.loads(body)["data"] == {"a": 1}
    assert first["content-type"] == "application/cloudevents+json"
    assert first["webhook-signature"] == signed(b"evt_1.1614265330." + body)
    assert first["angarium-signature"] == signed(b"evt_1.41." + body)
    post.now += 3600
    second = post.headers(policy=structured, ordinal=2)
    assert post.wire.requests[1].body == body
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"webhook-timestamp", "webhook-signature", "angarium-attempt", "traceparent"}


def test_a_binary_cloudevent_has_its_attributes_and_the_headers_of_every_event() -> None:
    post = Post()
    headers = post.headers(policy=policy(format="cloudevents", headers={"ce-id": "mine", "x-a": "b"}))
    plain = post.headers()
    assert headers.items() >= {"ce-id": "evt_1", "ce-specversion": "1.0", "x-a": "b"}.items()
    assert {name for name in headers if not name.startswith("ce-")} == {*plain, "x-a"}
    assert post.wire.requests[0].body == EVENT.body


def test_a_ping_in_an_envelope_is_signed_and_has_no_number() -> None:
    post = Post()
    headers = post.headers(policy=policy(format="envelope"), sequence=None)
    body = post.wire.requests[0].body
    assert "sequence" not in json.loads(body)["events"][0]
    assert headers["webhook-signature"] == signed(b"evt_1.1614265330." + body)


def test_every_secret_signs_both() -> None:
    post = Post()
    headers = post.headers(policy=policy(secrets=(OTHER, SECRET)))
    alone = post.headers()
    for name in ("webhook-signature", "angarium-signature"):
        newest, oldest = headers[name].split(" ")
        assert oldest == alone[name] != newest


def test_an_old_secret_signs_until_its_moment() -> None:
    post = Post()
    until = datetime.fromtimestamp(post.now + 1, UTC)
    changed = policy(secrets=(OTHER,), old_secrets=(OldSecret(secret=SECRET, until=until),))
    both, alone = post.headers(policy=changed), post.headers()
    for name in ("webhook-signature", "angarium-signature"):
        newest, old = both[name].split(" ")
        assert old == alone[name] != newest
    post.now += 1
    assert post.headers(policy=changed) == post.headers(policy=policy(secrets=(OTHER,))) | {
        "traceparent": post.headers_of(-2)["traceparent"]
    }


def test_the_lasting_signature_does_not_pass_for_the_standard_one() -> None:
    headers = Post().headers()
    sequence = {
        "webhook-id": headers["webhook-id"],
        "webhook-timestamp": headers["angarium-sequence"],
        "webhook-signature": headers["angarium-signature"],
    }
    with pytest.raises(standardwebhooks.WebhookVerificationError, match="too old"):
        standardwebhooks.Webhook(SECRET).verify(EVENT.body, sequence)


def test_without_secrets_nothing_is_signed() -> None:
    headers = Post().headers(policy=policy(secrets=()))
    assert not {"webhook-signature", "angarium-signature"} & headers.keys()
    assert headers["angarium-sequence"] == "41"


def test_a_ping_has_no_sequence_and_nothing_signed_over_one() -> None:
    headers = Post().headers(sequence=None, event=event(type="angarium.ping"))
    assert not {"angarium-sequence", "angarium-signature"} & headers.keys()
    assert "webhook-signature" in headers


def test_the_producers_headers_are_passed_on() -> None:
    parent = f"00-{TRACE}-b7ad6b7169203331-00"
    headers = Post().headers(
        event(again="replay-1", content_type="text/plain", traceparent=parent, tracestate="a=b")
    )
    assert headers["angarium-again"] == "replay-1"
    assert headers["content-type"] == "text/plain"
    assert headers["tracestate"] == "a=b"
    assert re.fullmatch(f"00-{TRACE}-(?!b7ad6b7169203331)[0-9a-f]{{16}}-00", headers["traceparent"])


def test_attempts_of_untraced_events_have_traces_of_their_own() -> None:
    post = Post()
    assert len({post.headers()["traceparent"] for _ in range(10)}) == 10


def test_a_receivers_own_headers_are_added_and_override_nothing() -> None:
    post = Post()
    own = {
        "X-Team": "billing",
        "authorization": "Bearer caf\xe9",
        "x-blank": " \tpadded ",
        "User-Agent": "mine",
        "Content-Type": "mine",
        "TraceParent": "mine",
        "tracestate": "mine",
        "Webhook-Id": "mine",
        "ANGARIUM-Sequence": "9",
        "angarium-again": "mine",
        "Host": "mine",
        "Content-Length": "9",
        "Transfer-Encoding": "chunked",
        "Connection": "close",
        "Keep-Alive": "timeout=9",
        "Upgrade": "h2c",
        "Expect": "100-continue",
        "TE": "trailers",
        "Trailer": "x",
        "Proxy-Authorization": "mine",
    }
    plain = post.headers()
    headers = post.headers(policy=policy(headers=own))
    added = {name: headers.pop(name) for name in headers.keys() - plain.keys()}
    assert added == {"x-team": "billing", "authorization": "Bearer caf\xe9", "x-blank": "padded"}
    assert {name for name in headers if headers[name] != plain[name]} == {"traceparent"}


def test_a_new_configuration_takes_effect_with_the_next_attempt() -> None:
    post = Post()
    assert post.headers()["webhook-signature"] == post.headers()["webhook-signature"]
    assert post.headers(policy=policy(secrets=(OTHER,))) != post.headers()
    post.send(policy=policy(url="https://other.example/"))
    assert post.wire.requests[-1].target.host == "other.example"


def test_the_prepared_receivers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "PREPARED_MAX", 2)
    post = Post()
    for name in ("a", "b", "c", "b", "a"):
        post.send(receiver=f"acme.{name}", policy=policy(url=f"https://{name}.example/"))
    hosts = [request.target.host for request in post.wire.requests]
    assert hosts == ["a.example", "b.example", "c.example", "b.example", "a.example"]
    assert len(post.sender._prepared) == 2


def test_a_url_or_secret_that_cannot_be_used_is_a_failure_that_says_which() -> None:
    post = Post()
    for fields, detail in (
        ({"url": "http://127.1/"}, "url: an IPv4 address must be"),
        ({"secrets": (SECRET, "whsec_short")}, "secrets[1]: "),
    ):
        outcome = post.send(policy=policy(**fields))
        assert isinstance(outcome, Failed)
        assert outcome.error == "blocked"
        assert outcome.detail.startswith(detail)
    assert post.wire.requests == []


def test_an_answer_is_answered() -> None:
    assert Post().send() == Answered(
        status=200, headers=(("x", "y"),), body=b"ok", latency_ms=250.0, size=100
    )


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.LEASE])
def test_a_failure_keeps_its_kind_and_what_is_known_of_its_status(kind: FailureKind) -> None:
    outcome = Post(Failure(kind=kind, detail="why", latency_s=0.5, status=503)).send()
    assert outcome == Failed(error=kind.value, detail="why", latency_ms=500.0, status=503)


def test_a_lease_that_ended_means_that_nothing_was_sent() -> None:
    outcome = Post(Failure(kind=FailureKind.LEASE, detail="the lease ended", latency_s=0.5)).send()
    assert outcome == NotSent(why="the lease ended")


def test_no_secret_is_shown() -> None:
    post = Post()
    post.send(policy=policy(headers={"authorization": "Bearer T0KEN"}))
    shown = f"{post.sender._prepared} {post.wire.requests}"
    assert "MfKQ" not in shown
    assert "T0KEN" not in shown
    assert "https://example.com/…" in shown
