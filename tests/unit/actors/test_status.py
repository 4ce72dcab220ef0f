"""The status that `inspect` shows: one word for the phase, instants as text, and no secret."""

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from actors import status
from actors.configuration.credentials import Credentials, credentials_of
from actors.configuration.policy import Policy, Rate, Retry
from actors.machine.bucket import Bucket, RateLimit
from actors.machine.event import Event
from actors.machine.facts import AttemptFailed, Burial, Delivered, Throttled
from actors.machine.numbering import Frontier, Numbered, advance, with_number
from actors.machine.outcome import Answered
from actors.machine.scheduling.phases import Phase
from actors.machine.scheduling.view import FixedBounds, View
from actors.machine.state import BURIALS_MAX, Alert, OpenEvent, State
from actors.status import Head, inspect, known_head, phase, read_head, remedy, why
from actors.times_as_text import age_text
from tests.unit.worlds.shard import strict
from tests.unit.worlds.virtual_time import in_virtual_time

NOW = 1_700_000_000.0
STEPS_MAX = 60
"""Instructions of the interpreter that it may take to look for credentials, for each character of a text."""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
UNPROVEN = Policy(url="https://a.example", handshake="cloudevents")
POLICY = Policy(
    url="https://example.com/hook?token=hidden", secrets=(SECRET,), headers={"authorization": "hidden"},
    rates=(Rate(limit=30, per="minute", burst=4),),
)  # fmt: skip
RELAXED = Policy(url="https://a.example", order="relaxed")
ENTRY = OpenEvent(sequence=3, position=9, id="e3", stored_at=NOW - 10, attempts=1, next_at=NOW + 1.5)
HEAD = Event(position=9, id="e3", stored_at=NOW - 10, body=b"{}")
UNREADY = View(waiting=(HEAD,), bounds=FixedBounds(may_start=False))


def shown(
    state: State,
    policy: Policy | None = POLICY,
    *,
    last_answer: Answered | None = None,
    answer_shown: bool = True,
) -> Mapping[str, object]:
    view = View(waiting=(HEAD,), bucket=state.bucket)
    return inspect(
        state, policy, view, NOW, shard=7, node="n1", queued=2, backlog=40,
        head=Head(position=9, sequence=3, id="e3", stored_at=NOW - 10, type="order.created"),
        last_answer=last_answer, problems=[], answer_shown=answer_shown,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "policy", "view", "expected"),
    [
        (State(receiver="a.b"), POLICY, View(), "idle"),
        (State(receiver="a.b"), POLICY, View(in_flight=(1,)), "active"),
        (State(receiver="a.b"), POLICY, View(waiting=(HEAD,)), "active"),
        (State(receiver="a.b", parked=True), POLICY, View(), "active"),
        (State(receiver="a.b", open=(ENTRY,)), POLICY, View(), "backing_off"),
        (State(receiver="a.b", open=(ENTRY,)), RELAXED, View(), "active"),
        (State(receiver="a.b", open=(ENTRY,), backoff_until=NOW + 1), RELAXED, View(), "backing_off"),
        (State(receiver="a.b", throttled_until=NOW + 1, open=(ENTRY,)), POLICY, View(), "throttled"),
        (State(receiver="a.b", throttled_until=NOW), POLICY, View(), "idle"),
        (State(receiver="a.b", failing_since=NOW - 299, open=(ENTRY,)), POLICY, View(), "backing_off"),
        (State(receiver="a.b", failing_since=NOW - 300, open=(ENTRY,)), POLICY, View(), "offline"),
        (State(receiver="a.b", failing_since=NOW - 900, paused=True), POLICY, View(), "paused"),
        (State(receiver="a.b"), Policy(url="https://a.example", paused=True), View(), "paused"),
        (State(receiver="a.b", paused=True, disabled="gone"), POLICY, View(), "disabled"),
        (State(receiver="a.b", disabled="gone"), None, View(), "misconfigured"),
    ],
)
def test_the_phase_is_the_gravest_that_holds(
    state: State, policy: Policy | None, view: View, expected: str
) -> None:
    assert phase(state, policy, view, NOW) == expected


FAILED = AttemptFailed(receiver="a.b", events=(), at=NOW, attempt=1, status=503, error="HTTP 503")
TIMEOUT = AttemptFailed(receiver="a.b", events=(), at=NOW, attempt=1, error="timeout: no answer in 15 s")
OURS = AttemptFailed(receiver="a.b", events=(), at=NOW, attempt=1, error="overload: full", ours=True)
PING_400 = AttemptFailed(receiver="a.b", events=(), at=NOW, attempt=3, status=400, rejected=True)
THIRD = Numbered(sequence=3, position=9, id="e3", stored_at=NOW - 10)
ANSWERED_400 = replace(PING_400, events=(THIRD,))
OTHER = replace(ENTRY, sequence=2, position=8)
REJECTED = replace(ENTRY, rejections=3, next_at=NOW + 600)
SLOW = Delivered(receiver="a.b", events=(), at=NOW, attempt=1, status=200, latency_ms=300.0)
THROTTLED = Throttled(receiver="a.b", events=(), at=NOW, attempt=1, status=429, until=NOW + 42)
EMPTY = Bucket(0.0, NOW, 1)
BURIALS = tuple(Burial(position=n, reason="expired") for n in range(BURIALS_MAX))


@pytest.mark.parametrize(
    ("members", "policy", "view", "expected"),
    [
        ({}, POLICY, View(in_flight=(1,)), "an attempt is under way"),
        ({}, RELAXED, View(in_flight=(1, 2)), "2 attempts are under way"),
        (
            {"last": SLOW}, Policy(url="https://a.example"), View(in_flight=(1,)),
            "answers take 0.3 s, one attempt at a time: 3.3 a second",
        ),
        ({"last": SLOW}, RELAXED, View(in_flight=(1,)), "an attempt is under way"),
        ({"last": SLOW}, POLICY, View(in_flight=(1,)), "an attempt is under way"),
        (
            {"open": (REJECTED,), "backoff_until": NOW + 600, "last": ANSWERED_400}, POLICY, View(),
            "backing off until 2023-11-14T22:23:20Z (in 10m): "
            "#3 was rejected 3 of 5 times, the last: HTTP 400",
        ),
        (
            {"open": (OTHER, REJECTED), "backoff_until": NOW + 600, "last": ANSWERED_400}, RELAXED, View(),
            "backing off until 2023-11-14T22:23:20Z (in 10m): "
            "#3 was rejected 3 of 5 times, the last: HTTP 400",
        ),
        (
            {"open": (REJECTED,), "backoff_until": NOW + 600, "last": PING_400}, POLICY, View(),
            "backing off until 2023-11-14T22:23:20Z (in 10m): the last attempt was rejected: HTTP 400",
        ),
        ({}, POLICY, View(waiting=(HEAD,)), "the next attempt is due"),
        ({"parked": True}, POLICY, View(), "the next attempt is due"),
        ({}, POLICY, UNREADY, "waiting for NATS to confirm what was recorded"),
        (
            {}, POLICY, View(waiting=(HEAD,), barrier_unconfirmed=True),
            "waiting for NATS to confirm what was recorded",
        ),
        (
            {"burials": BURIALS}, Policy(url="https://a.example", retry=Retry(max_age_s=5)),
            View(waiting=(HEAD,), burying=True), "waiting for NATS to store its dead letters",
        ),
        (
            {}, POLICY, View(waiting=(HEAD,), removal_revision=7, confirming=True),
            "waiting for NATS to say whether the receiver was removed",
        ),
        (
            {"limit": RateLimit(0.5, 4)}, POLICY, View(waiting=(HEAD,), bucket=EMPTY),
            "held back by its rate of 30 per minute; the next in 3s",
        ),
        (
            {"limit": RateLimit(0.5, 4)}, POLICY, View(waiting=(HEAD,), bucket=Bucket(1.0, NOW, 1)),
            "the next attempt is due",
        ),
        (
            {"open": (ENTRY,)}, RELAXED, View(),
            "every waiting event was tried; the next retry is at 2023-11-14T22:13:21Z (in 2s)",
        ),
        ({"open": (ENTRY,)}, RELAXED, View(waiting=(HEAD,)), "the next attempt is due"),
        (
            {"open": (ENTRY,), "consecutive_failures": 1, "last": FAILED}, POLICY, View(),
            "backing off until 2023-11-14T22:13:21Z (in 2s): 1 failure, the last: HTTP 503",
        ),
        (
            {"open": (ENTRY,), "backoff_until": NOW + 600, "consecutive_failures": 7, "last": TIMEOUT},
            RELAXED, View(),
            "backing off until 2023-11-14T22:23:20Z (in 10m): 7 failures in a row, "
            "the last: timeout: no answer in 15 s",
        ),
        (
            {"open": (ENTRY,), "backoff_until": NOW + 9, "last": OURS}, POLICY, View(),
            "backing off until 2023-11-14T22:13:29Z (in 9s): this node was overloaded at the last attempt",
        ),
        (
            {"backoff_until": NOW + 9, "last": replace(OURS, error="proxy: proxy eu: answered 403")}, POLICY,
            View(waiting=(HEAD,)),
            "backing off until 2023-11-14T22:13:29Z (in 9s): "
            "the proxy did not let the last attempt through (proxy eu: answered 403)",
        ),
        (
            {"throttled_until": NOW + 42, "last": THROTTLED}, POLICY, View(waiting=(HEAD,)),
            "throttled until 2023-11-14T22:14:02Z (in 42s): it answered 429",
        ),
        (
            {"throttled_until": NOW + 42}, POLICY, View(),
            "throttled until 2023-11-14T22:14:02Z (in 42s): as it asked",
        ),
        (
            {"failing_since": NOW - 400, "backoff_until": NOW + 7200, "consecutive_failures": 9,
             "last": TIMEOUT},
            POLICY, View(),
            "offline: no success since 2023-11-14T22:06:40Z (6m ago), 9 failures in a row, "
            "the last: timeout: no answer in 15 s; the next attempt is at 2023-11-15T00:13:20Z (in 2h)",
        ),
        (
            {"failing_since": NOW - 400, "consecutive_failures": 9}, POLICY, View(in_flight=(9,)),
            "offline: no success since 2023-11-14T22:06:40Z (6m ago), 9 failures in a row; "
            "an attempt is under way",
        ),
        (
            {"failing_since": NOW - 400, "consecutive_failures": 9}, POLICY, View(),
            "offline: no success since 2023-11-14T22:06:40Z (6m ago), 9 failures in a row; "
            "the next attempt is due",
        ),
        ({"paused": True}, POLICY, View(), "paused"),
        ({"disabled": "asked"}, POLICY, View(), "disabled: it answered angarium-disable"),
        (
            {"disabled": "gone"}, POLICY, View(),
            "disabled: it answered 410",
        ),
        (
            {"disabled": "failing", "failing_since": NOW - 432_000}, POLICY, View(),
            "disabled: no success since 2023-11-09T22:13:20Z (5d ago)",
        ),
        (
            {}, None, View(),
            "misconfigured: url: must be there",
        ),
    ],
)  # fmt: skip
def test_the_status_says_in_words_why_nothing_moves(
    members: dict[str, Any], policy: Policy | None, view: View, expected: str
) -> None:
    state = State(receiver="a.b", opened=True, **members)
    problems = () if policy else ("url: must be there",)
    assert why(state, policy, view, NOW, backlog=3, problems=problems) == expected
    held = expected.startswith(("backing", "throttled", "offline", "paused", "disabled", "misconfigured"))
    alone = f"nothing waits; {expected}" if held else "nothing waits"
    assert why(state, policy, view, NOW, backlog=0, problems=problems) == alone


def test_a_receiver_that_never_had_a_valid_configuration_is_misconfigured() -> None:
    assert why(State(receiver="a.b"), None, View(), NOW, backlog=1) == (
        "misconfigured: it never had a valid configuration"
    )


@pytest.mark.parametrize(
    ("members", "policy", "expected"),
    [
        ({"paused": True}, POLICY, "resume"),
        ({"disabled": "gone"}, POLICY, "resume"),
        ({}, None, "put"),
        ({"throttled_until": NOW + 1}, POLICY, None),
        ({"backoff_until": NOW + 1}, POLICY, None),
        ({"failing_since": NOW - 900}, POLICY, None),
        ({}, POLICY, None),
    ],
)
def test_an_operator_has_to_end_what_does_not_end_by_itself(
    members: dict[str, Any], policy: Policy | None, expected: str | None
) -> None:
    assert remedy(State(receiver="a.b", **members), policy, NOW) == expected


def test_every_phase_has_its_words() -> None:
    """The words are the name of the phase, except for the two phases in which nothing is held back."""
    said = {
        phase(state, policy, View(), NOW): why(state, policy, View(), NOW, backlog=1)
        for state, policy in (
            (State(receiver="a.b", throttled_until=NOW + 1), POLICY),
            (State(receiver="a.b", backoff_until=NOW + 1), POLICY),
            (State(receiver="a.b", failing_since=NOW - 900), POLICY),
            (State(receiver="a.b", paused=True), POLICY),
            (State(receiver="a.b", disabled="gone"), POLICY),
            (State(receiver="a.b"), UNPROVEN),
            (State(receiver="a.b"), None),
        )
    }
    assert set(said) == set(get_args(Phase)) - {"idle", "active"}
    for held, words in said.items():
        assert words.startswith(held.replace("_", " "))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (7200, "2h"), (86_400 * 3 + 1, "3d")],
)
def test_durations_have_a_unit_that_suits_their_size(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_the_head_is_the_oldest_that_is_not_settled() -> None:
    fresh = State(receiver="a.b", frontier=Frontier(position=8, sequence=2))
    second = Event(position=11, id="e4", stored_at=NOW, body=b"", type="b")
    expected = Head(position=9, sequence=3, id="e3", stored_at=NOW - 10, type="message")
    assert known_head(fresh, View(waiting=(HEAD,)), {}) == expected
    assert known_head(fresh, View(waiting=(second,)), {9: HEAD}) == expected
    assert (
        known_head(
            State(receiver="a.b", open=(ENTRY,)), View(waiting=(second,), open_in_memory={9: HEAD}), {}
        )
        == expected
    )
    opened = known_head(State(receiver="a.b", open=(ENTRY,)), View(waiting=(second,)), {})
    assert opened == Head(position=9, sequence=3, id="e3", stored_at=NOW - 10)
    assert known_head(fresh, View(), {}) is None


def test_a_duplicate_read_from_the_stream_is_not_the_head() -> None:
    state = State(receiver="a.b", frontier=advance(Frontier(), with_number(HEAD, 1)))
    again = Event(position=12, id="e3", stored_at=NOW, body=b"")
    following = Event(position=13, id="e5", stored_at=NOW, body=b"", type="a")
    found = read_head(state, [HEAD, again, following])
    assert found == Head(position=13, sequence=2, id="e5", stored_at=NOW, type="a")
    assert read_head(state, [HEAD, again]) is None


def test_the_status_shows_everything_that_the_contract_lists() -> None:
    event = Numbered(sequence=3, position=9, id="e3", stored_at=NOW - 10)
    last = AttemptFailed(
        receiver="acme.billing", events=(event,), at=NOW - 0.5, attempt=1, status=500, latency_ms=12.34567,
        error="HTTP 500", next_at=NOW + 1.5,
    )  # fmt: skip
    state = State(
        receiver="acme.billing", frontier=Frontier(position=9, sequence=3), open=(ENTRY,), last=last,
        limit=RateLimit(0.5, 4), bucket=Bucket(1.0, NOW - 2, 5), failing_since=NOW - 60,
        consecutive_failures=2,
        alerts=(
            Alert(kind="failing", raised_at=NOW - 3, raised=True), Alert(kind="behind", raised_at=NOW - 9),
        ),
    )  # fmt: skip
    assert shown(state) == {
        "receiver": "acme.billing", "shard": 7, "node": "n1", "phase": "backing_off",
        "why": "backing off until 2023-11-14T22:13:21Z (in 2s): 2 failures in a row, the last: HTTP 500",
        "remedy": None, "problems": [],
        "next_sequence": 4, "settled_sequence": 2, "in_flight": 0, "queued": 2, "backlog": 40,
        "parked": False, "disabled": None,
        "head": {
            "sequence": 3, "event_id": "e3", "type": "order.created",
            "stored_at": "2023-11-14T22:13:10.000Z", "age_s": 10.0,
        },
        "bucket": {"tokens": 2.0, "limit": 30, "per": "minute", "burst": 4, "effective_limit": 30.0},
        "pace": None,
        "handshake": None,
        "transform": None,
        "resume_at": "2023-11-14T22:13:21.500Z",
        "failing_since": "2023-11-14T22:12:20.000Z",
        "alerts": {"failing": "2023-11-14T22:13:17.000Z"},
        "consecutive_failures": 2,
        "last_attempt": {
            "at": "2023-11-14T22:13:19.500Z", "kind": "event", "sequence": 3, "event_id": "e3", "attempt": 1,
            "status": 500, "error": "HTTP 500", "latency_ms": 12.346,
        },
        "last_response": None,
        "counters": {
            "delivered": 0, "failed_attempts": 0, "throttled": 0, "dead": 0, "discarded": 0, "duplicates": 0,
        },
        "posts": 0,
    }  # fmt: skip


def test_nothing_is_due_by_itself_while_an_operator_holds_the_receiver_back() -> None:
    state = State(receiver="a.b", open=(ENTRY,), throttled_until=NOW + 9)
    assert shown(state)["resume_at"] == "2023-11-14T22:13:29.000Z"
    for held in (State(receiver="a.b", open=(ENTRY,), disabled="gone"), State(receiver="a.b", paused=True)):
        assert shown(held)["resume_at"] is None
    assert shown(state, None)["resume_at"] is None


def test_there_is_no_bucket_without_a_rate() -> None:
    assert shown(State(receiver="a.b"))["bucket"] is None
    state = State(receiver="a.b", limit=RateLimit(1.0, 1), bucket=Bucket(1.0, NOW, 1))
    assert shown(state, Policy(url="https://a.example"))["bucket"] is None


def test_the_last_answer_is_shown_as_text_without_cookies() -> None:
    answer = Answered(
        status=200, latency_ms=1, body=b"\xffx",
        headers=(("set-cookie", "session=hidden"), ("vary", "a"), ("vary", "b"), ("Set-Cookie", "hidden")),
    )  # fmt: skip
    response = shown(State(receiver="a.b"), last_answer=answer)["last_response"]
    assert isinstance(response, dict)
    assert response["headers"] == {"set-cookie": "[redacted]", "vary": "a, b", "Set-Cookie": "[redacted]"}
    assert response["body"] == "�x"


def test_answers_are_hidden_from_users_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is not even processed for these users."""
    monkeypatch.delattr(status, "_response")
    state = State(receiver="a.b")
    answer = Answered(status=200, latency_ms=1, body=b"whose number is", headers=(("x-got", "whose number"),))
    seen = shown(state, last_answer=answer, answer_shown=False)
    assert seen == {**shown(state), "last_response": {"status": 200}}
    assert shown(state, answer_shown=False) == shown(state)


def test_credentials_that_an_answer_repeats_are_hidden() -> None:
    policy = Policy(
        url="https://a.example", headers={"authorization": "Bearer hush-hush", "x-team": "billing", "x": "1"}
    )
    answer = Answered(
        status=401, latency_ms=1, headers=(("x-got", "Bearer hush-hush"), ("x-team", "billing 1")),
        body=b"no such token: hush-hush; billing 1",
    )  # fmt: skip
    response = shown(State(receiver="a.b"), policy, last_answer=answer)["last_response"]
    assert response == {
        "status": 401,
        "headers": {"x-got": "Bearer [redacted]", "x-team": "billing 1"},
        "body": "no such token: [redacted]; billing 1",
    }


@pytest.mark.parametrize(
    ("ends", "shown_end"),
    [
        ("Bearer hush-hush-", "Bearer [redacted]"),
        ("Bearer hush-hus", "Bearer [redacted]"),
        ("Bearer hush-hu", "Bearer hush-hu"),
        ("Bearer hush-hush-hush", "Bearer [redacted]"),
        ("hush-hush.", "[redacted]."),
        ("hush-hu.", "hush-hu."),
    ],
)
def test_a_repeated_credential_is_hidden_even_if_the_body_is_cut_within_it(ends: str, shown_end: str) -> None:
    """A beginning too short to be recognised stays; a longer one is hidden, with any text after it."""
    policy = Policy(url="https://a.example", headers={"authorization": "Bearer hush-hush-hush"})
    whole = Answered(status=401, latency_ms=1, body=b"." * (4096 - len(ends)) + ends.encode() + b"-hush")
    response = shown(State(receiver="a.b"), policy, last_answer=whole.excerpt())["last_response"]
    assert isinstance(response, dict)
    assert response["body"].lstrip(".") == shown_end


def test_credentials_that_contain_each_other_are_hidden_completely() -> None:
    policy = Policy(url="https://a.example", headers={"x-a": "hush-hush", "x-b": "hush-hush-more"})
    answer = Answered(status=401, latency_ms=1, body=b"hush-hush-more, hush-hush, hush-hush-mo")
    response = shown(State(receiver="a.b"), policy, last_answer=answer)["last_response"]
    assert isinstance(response, dict)
    assert response["body"] == "[redacted], [redacted], [redacted]"


def test_credentials_that_overlap_in_an_answer_are_hidden_completely() -> None:
    policy = Policy(url="https://a.example", headers={"x-a": "abcdefgh", "x-b": "efghSECRETSECRET"})
    answer = Answered(status=401, latency_ms=1, body=b"<abcdefghSECRETSECRET><abcdefghabcdefgh>")
    response = shown(State(receiver="a.b"), policy, last_answer=answer)["last_response"]
    assert isinstance(response, dict)
    assert response["body"] == "<[redacted]><[redacted][redacted]>"


def steps_of(work: Callable[[], str]) -> tuple[str, int]:
    """Returns the result, and the number of the interpreter's instructions that it took."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), count
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    "words",
    [
        ["redacted"] * 1700,
        [f"{number:08}" for number in range(1700)],
        ["q" * length + "x" for length in range(8, 170)],
        ["q" * 4096] * 3,
    ],
    ids=["words of the replacement", "many", "many lengths", "long"],
)
@pytest.mark.parametrize("body", ["redacted" * 512, "q" * 4096])
def test_the_cost_of_hiding_depends_only_on_the_length_of_the_text(words: list[str], body: str) -> None:
    """Otherwise a user who controls both texts could block the node for seconds."""
    text, steps = steps_of(lambda: Credentials(words).hide(body))
    assert steps <= STEPS_MAX * (len(body) + sum(map(len, words)))
    assert len(text) <= 2 * len(body)


def test_the_credentials_of_a_configuration_are_found_once() -> None:
    """Every failed attempt is shown without them, and finding 16 KiB takes more than a millisecond."""
    headers = {f"x-{n}": "secret-word " * 20 for n in range(64)}
    first, second = (Policy(url="https://a.example/", headers=dict(headers)) for _ in range(2))
    assert credentials_of(first) is credentials_of(second)
    assert credentials_of(first) is not credentials_of(Policy(url="https://a.example/"))


def test_parts_of_the_url_that_an_answer_repeats_are_hidden() -> None:
    policy = Policy(url="https://a.example/hooks/T0/xyz?token=hush-hush&v=1")
    answer = Answered(status=404, latency_ms=1, body=b"cannot POST /hooks/T0/xyz?token=hush-hush&v=1")
    response = shown(State(receiver="a.b"), policy, last_answer=answer)["last_response"]
    assert isinstance(response, dict)
    assert response["body"] == "cannot POST /[redacted]?token=[redacted]&v=1"


@in_virtual_time
async def test_only_the_shown_part_of_an_answer_is_kept() -> None:
    world = strict()
    world.sender.answers(
        Answered(status=200, latency_ms=1.0, headers=(("x", "y" * 60_000),), body=bytes(65_536))
    )
    world.publish()
    await world.until_settled(1)
    assert world.actor.last_answer == Answered(status=200, latency_ms=1.0, body=bytes(4096))


def test_no_secret_is_shown_and_it_is_json() -> None:
    last = Delivered(receiver="a.b", events=(), at=NOW, attempt=1, status=200, kind="ping")
    answer = Answered(status=200, latency_ms=1, headers=(("set-cookie", "hidden"),))
    text = msgspec.json.encode(shown(State(receiver="a.b", last=last), last_answer=answer)).decode()
    assert "hidden" not in text
    assert SECRET not in text
    assert '"kind":"ping","sequence":null,"event_id":null' in text
