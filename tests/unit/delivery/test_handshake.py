"""The request of a handshake, and the answers that are no proof, however they look."""

import asyncio
import base64
import hmac
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.configuration.policy import OldSecret, Policy, Rate
from actors.machine.event import Event
from actors.machine.handshake.deciding import is_proof
from actors.machine.outcome import Answered, Failed, NotSent, Outcome
from actors.ports import Attempt
from angarium.delivery.handshake import ANSWER_MAX, NONCE_LENGTH_MAX, check_proof, question
from angarium.delivery.http_exchange.transport import (
    Failure,
    FailureKind,
    ProfileNames,
    Request,
    Response,
    request_head,
)
from angarium.delivery.sender import HttpSender
from angarium.development.handshakes import handshake_reply
from angarium.http_server import Received

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER_KEY = bytes(range(1, 33))
OTHER = "whsec_" + base64.b64encode(OTHER_KEY).decode()
HMAC = Policy(
    url="https://example.com/hook?a=1", secrets=(SECRET,), handshake="hmac", headers={"x-team": "a"}
)
CLOUDEVENTS = Policy(url="https://example.com/hook", handshake="cloudevents")
EVENT = Event(position=0, id="handshake_1_1", stored_at=0.0, body=b"", type="angarium.handshake")
NOW = 1_700_000_000.0


def signed(key: bytes, challenge: str, nonce: str, prefix: str = "angarium.handshake.") -> str:
    """Signs with the standard library alone, as a receiver does."""
    return base64.b64encode(hmac.digest(key, f"{prefix}{challenge}.{nonce}".encode(), "sha256")).decode()


class Receiver:
    """A transport with a receiver behind it, which answers with what `body` is or returns."""

    def __init__(self, body: Any = b"", status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.requests: list[Request] = []
        self.failure: Failure | None = None
        self._body, self._status, self._headers = body, status, headers or {}

    @property
    def given(self) -> dict[str, str]:
        return dict(line.decode().split(": ", 1) for line in self.requests[-1].lines)

    async def post(self, request: Request) -> Response | Failure:
        self.requests.append(request)
        if self.failure is not None:
            return self.failure
        body = self._body if isinstance(self._body, bytes) else self._body(self.given["angarium-challenge"])
        headers = tuple(self._headers.items())
        return Response(status=self._status, headers=headers, body=body, latency_s=0.1, size=0)

    async def close(self) -> None: ...


def ask(receiver: Receiver, policy: Policy = HMAC, kind: Any = "handshake") -> Outcome:
    attempt = Attempt(
        receiver="acme.billing", policy=policy, event=EVENT, sequence=None, ordinal=1,
        may_start=lambda: True, shapings=(), kind=kind,
    )  # fmt: skip
    return asyncio.run(HttpSender(receiver, clock=lambda: NOW).send(attempt))


def proving(key: bytes = KEY, nonce: str = "n1", **more: Any) -> Receiver:
    """A receiver that has this key."""
    return Receiver(
        lambda challenge: json.dumps({"nonce": nonce, "hmac": signed(key, challenge, nonce)} | more).encode()
    )


def why(receiver: Receiver, policy: Policy = HMAC) -> str:
    """Why the answer is no proof."""
    outcome = ask(receiver, policy)
    assert isinstance(outcome, Failed)
    assert (outcome.error, outcome.status) == ("unproven", 200)
    return outcome.detail


# ---- hmac


def test_a_handshake_by_hmac_is_a_get_with_a_challenge_that_never_comes_again() -> None:
    receiver = proving()
    assert isinstance(ask(receiver), Answered)
    assert isinstance(ask(receiver), Answered)
    first, second = receiver.requests
    assert request_head(first).startswith(
        b"GET /hook?a=1 HTTP/1.1\r\nhost: example.com\r\nangarium-challenge: "
    )
    assert request_head(first).endswith(b"\r\n\r\n")
    assert b"content-length" not in request_head(first)
    assert first.lines[0] != second.lines[0]
    assert re.fullmatch("[A-Za-z][A-Za-z0-9_-]{42,}", receiver.given["angarium-challenge"])
    assert receiver.given["x-team"] == "a"
    assert not {"webhook-id", "webhook-signature", "angarium-event"} & set(receiver.given)


def test_each_secret_that_signs_now_is_proof() -> None:
    """A rotation with an overlap stops no events: the receiver may still have the old secret."""
    until = datetime.fromtimestamp(NOW, UTC)
    for left_s, proves in ((60, True), (-60, False)):
        old = OldSecret(secret=OTHER, until=until + timedelta(seconds=left_s))
        rotated = Policy(url=HMAC.url, secrets=(SECRET,), old_secrets=(old,), handshake="hmac")
        assert isinstance(ask(proving(OTHER_KEY), rotated), Answered) is proves
    two = Policy(url=HMAC.url, secrets=("whs512_" + OTHER.removeprefix("whsec_"), SECRET), handshake="hmac")
    assert isinstance(ask(proving(OTHER_KEY), two), Answered)
    assert isinstance(ask(proving(), two), Answered)


def test_an_hmac_of_anything_else_is_not_proof() -> None:
    wrong = "the hmac of the answer is wrong"
    assert why(proving(OTHER_KEY)) == wrong
    other_nonce = Receiver(
        lambda asked: json.dumps({"nonce": "n2", "hmac": signed(KEY, asked, "n1")}).encode()
    )
    assert why(other_nonce) == wrong
    old_challenge = Receiver(lambda _: json.dumps({"nonce": "n", "hmac": signed(KEY, "old", "n")}).encode())
    assert why(old_challenge) == wrong
    no_prefix = Receiver(
        lambda asked: json.dumps({"nonce": "n", "hmac": signed(KEY, asked, "n", "")}).encode()
    )
    assert why(no_prefix) == wrong
    cut = Receiver(lambda asked: json.dumps({"nonce": "n", "hmac": signed(KEY, asked, "n")[:8]}).encode())
    assert why(cut) == wrong


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is not"),
        (b"<html>", "is not"),
        (b"[" * ANSWER_MAX, "is not"),
        (b'{"nonce": "n"}', "is not"),
        (b'{"nonce": 1, "hmac": "a"}', "is not"),
        (b'{"nonce": "\xff", "hmac": "a"}', "is not"),
        (b'{"nonce": "", "hmac": "aGk="}', "1 to 256 characters"),
        (b'{"nonce": "%b", "hmac": "aGk="}' % (b"n" * (NONCE_LENGTH_MAX + 1)), "1 to 256 characters"),
        (b'{"nonce": "n", "hmac": "no base64!"}', "not base64"),
        (b'{"nonce": "\\ud800", "hmac": "aGk="}', ""),
        (b'{"nonce": "n", "hmac": "\xc3\xa9"}', "not base64"),
        (b" " * (ANSWER_MAX + 1), "more than 4096 bytes"),
    ],
)
def test_a_hostile_answer_is_not_proof(body: bytes, said: str) -> None:
    assert said in why(Receiver(body))


def test_further_members_of_an_answer_are_ignored() -> None:
    assert isinstance(ask(proving(version=2, more=[1, {"a": None}])), Answered)


@pytest.mark.parametrize("status", [301, 302, 307, 401, 404, 405, 410, 429, 500])
def test_a_proof_counts_only_with_a_success(status: int) -> None:
    """A redirect is not followed, and with another status than 2xx the body proves nothing."""
    receiver = Receiver(
        lambda asked: json.dumps({"nonce": "n", "hmac": signed(KEY, asked, "n")}).encode(), status,
        {"location": "https://elsewhere.example/"},
    )  # fmt: skip
    outcome = ask(receiver)
    assert isinstance(outcome, Answered)
    assert outcome.status == status
    assert len(receiver.requests) == 1


def test_a_handshake_fails_like_any_request() -> None:
    receiver = proving()
    receiver.failure = Failure(kind=FailureKind.TIMEOUT, detail="no answer came in time", latency_s=15.0)
    assert ask(receiver) == Failed(error="timeout", detail="no answer came in time", latency_ms=15000.0)
    receiver.failure = Failure(kind=FailureKind.LEASE, detail="the lease expired", latency_s=0.0)
    assert ask(receiver) == NotSent(why="the lease expired")


@pytest.mark.parametrize("secret", [SECRET, "whs512_" + SECRET.removeprefix("whsec_")])
def test_the_receiver_of_listen_proves_itself(secret: str) -> None:
    public, other = "whpk_" + "A" * 43 + "=", "whsk_" + "A" * 43 + "="

    def prove(challenge: str) -> bytes:
        asked = Received("GET", "/", {"angarium-challenge": challenge}, b"")
        reply = handshake_reply(asked, [public, other, secret])
        assert reply is not None
        return reply.body

    assert isinstance(ask(Receiver(prove)), Answered)


def test_the_receiver_of_listen_proves_nothing_to_other_requests() -> None:
    challenge = {"angarium-challenge": "c" * 32}
    for method, headers, secrets in (
        ("GET", challenge, []), ("POST", challenge, [SECRET]), ("GET", {}, [SECRET]),
        ("GET", {"angarium-challenge": "c" * 257}, [SECRET]), ("OPTIONS", challenge, [SECRET]),
    ):  # fmt: skip
        assert handshake_reply(Received(method, "/", headers, b""), secrets) is None


@pytest.mark.parametrize(
    "challenge",
    [
        '1798365600.{"order":7}', "1798365600", "c" * 31, "c" * 31 + ".", "ü" * 32,
        "1798365600".zfill(32), "1798365600e0".zfill(32), "0x" + "6b314960".zfill(32), "_" + "1" * 32,
        "-" + "1" * 32,
    ],
)  # fmt: skip
def test_the_receiver_of_listen_signs_no_text_that_could_be_an_event(challenge: str) -> None:
    asked = Received("GET", "/", {"angarium-challenge": challenge}, b"")
    assert handshake_reply(asked, [SECRET]) is None


def test_the_receiver_of_listen_consents_to_every_origin() -> None:
    asked = Received("OPTIONS", "/", {"webhook-request-origin": "angarium"}, b"")
    reply = handshake_reply(asked, [])
    assert reply is not None
    assert isinstance(ask(Receiver(headers=dict(reply.headers)), CLOUDEVENTS), Answered)


# ---- cloudevents


def consent(**headers: str) -> Receiver:
    return Receiver(headers={f"webhook-allowed-{name}": value for name, value in headers.items()})


def test_a_handshake_of_cloudevents_asks_for_consent_and_for_the_configured_rate() -> None:
    receiver = consent(origin="angarium", rate="*")
    assert isinstance(ask(receiver, CLOUDEVENTS), Answered)
    head = request_head(receiver.requests[-1])
    assert head.startswith(b"OPTIONS /hook HTTP/1.1\r\nhost: example.com\r\n")
    assert b"\r\nwebhook-request-origin: angarium\r\n" in head
    assert b"webhook-request-rate" not in head
    asked = Policy(url=HMAC.url, handshake="cloudevents", rates=(Rate(limit=2, per="second"),))
    assert isinstance(ask(receiver, asked), Answered)
    assert receiver.given["webhook-request-rate"] == "120"


@given(st.integers(1, 1_000_000), st.sampled_from(["minute", "hour"]))
@example(123, "minute")
@example(7380, "hour")
def test_the_rate_that_is_asked_for_is_the_configured_one(limit: int, per: Literal["minute", "hour"]) -> None:
    """A receiver may allow just what is asked for: one less would lower the configured rate."""
    asked = question(Policy(url=HMAC.url, handshake="cloudevents", rates=(Rate(limit=limit, per=per),)))
    per_minute = limit if per == "minute" else limit // 60
    assert asked.lines == ((b"webhook-request-rate: %d" % per_minute,) if per_minute else ())
    assert Rate(limit=100, per="minute", margin=0.29).per_minute == 29


def test_each_post_after_the_handshake_of_cloudevents_names_the_origin() -> None:
    receiver = Receiver()
    ask(receiver, CLOUDEVENTS, "event")
    assert receiver.given["webhook-request-origin"] == "angarium"
    ask(receiver, HMAC, "event")
    assert "webhook-request-origin" not in receiver.given


@pytest.mark.parametrize("origin", ["*", "angarium", " angarium "])
def test_a_receiver_consents_by_naming_our_origin_or_any(origin: str) -> None:
    assert isinstance(ask(consent(origin=origin), CLOUDEVENTS), Answered)


@pytest.mark.parametrize("rate", ["*", "1", "120", "999999999", "1" + "0" * 5000])
def test_a_receiver_may_allow_a_rate(rate: str) -> None:
    outcome = ask(consent(origin="*", rate=rate), CLOUDEVENTS)
    assert isinstance(outcome, Answered)
    assert outcome.header("webhook-allowed-rate") == rate


def test_the_origin_is_that_of_the_settings() -> None:
    receiver = consent(origin="events.example.com")
    sender = HttpSender(receiver, origin="events.example.com")
    for kind in ("handshake", "event"):
        attempt = Attempt(
            receiver="acme.billing", policy=CLOUDEVENTS, event=EVENT, sequence=None, ordinal=1,
            may_start=lambda: True, shapings=(), kind=kind,
        )  # fmt: skip
        assert isinstance(asyncio.run(sender.send(attempt)), Answered)
        assert receiver.given["webhook-request-origin"] == "events.example.com"


def test_a_status_alone_is_not_consent() -> None:
    assert why(Receiver(), CLOUDEVENTS) == "the answer has no webhook-allowed-origin"
    assert (
        why(consent(origin="else.example"), CLOUDEVENTS) == "webhook-allowed-origin is neither * nor angarium"
    )


@pytest.mark.parametrize("rate", ["", "0", "-1", "1.5", "+1", "ten", "1_000", "٣", "000"])
def test_a_rate_that_cannot_be_read_is_not_consent(rate: str) -> None:
    assert why(consent(origin="*", rate=rate), CLOUDEVENTS).startswith("webhook-allowed-rate is neither")


def test_each_of_several_allowed_rates_must_be_one() -> None:
    answer = Answered(
        status=200, latency_ms=1.0,
        headers=(
            ("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "5"), ("webhook-allowed-rate", "ten"),
        ),
    )  # fmt: skip
    assert isinstance(check_proof(answer, question(CLOUDEVENTS), CLOUDEVENTS, NOW), Failed)


@pytest.mark.parametrize("policy", [HMAC, CLOUDEVENTS])
def test_an_answer_that_disables_the_receiver_is_not_judged_by_its_proof(policy: Policy) -> None:
    outcome = ask(Receiver(headers={"angarium-disable": "true"}), policy)
    assert isinstance(outcome, Answered)
    assert not is_proof(outcome)


def test_the_request_of_a_handshake_has_the_bounds_of_an_attempt() -> None:
    """A handshake begins only within the lease, takes no longer, and goes through the profiles."""

    def may_start() -> bool:
        return False

    receiver, names = Receiver(), ProfileNames(proxy="one", tls="two")
    slow = Policy(url=HMAC.url, secrets=(SECRET,), handshake="hmac", timeout_s=3.0)
    attempt = Attempt(
        receiver="acme.billing", policy=slow, event=EVENT, sequence=None, ordinal=1,
        may_start=may_start, shapings=(), kind="handshake",
    )  # fmt: skip
    receiver.failure = Failure(kind=FailureKind.LEASE, detail="the lease expired", latency_s=0.0)
    asyncio.run(HttpSender(receiver, profile_names=lambda _: names).send(attempt))
    [request] = receiver.requests
    assert (request.may_start, request.timeout_s, request.profiles) == (may_start, 3.0, names)
