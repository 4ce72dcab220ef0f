"""Configurations: the documented defaults and bounds, and a sentence for each wrong field."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.configuration.parsing import RESERVED, parse
from actors.configuration.policy import BatchLimits, Offline, Policy, Rate, Retry
from actors.configuration.problems import is_sent
from actors.errors import InvalidPolicy

URL = "https://example.com/hook"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def parsed(**members: Any) -> Policy:
    return parse(json.dumps({"url": URL} | members).encode(), strict=True)[0]


def problems(**members: Any) -> list[str]:
    with pytest.raises(InvalidPolicy) as refused:
        parsed(**members)
    return refused.value.problems


def test_only_the_url_is_needed_and_the_defaults_are_those_of_the_contract() -> None:
    policy = parsed()
    assert (policy.url, policy.events, policy.secrets, policy.order) == (URL, (">",), (), "strict")
    assert (policy.rate, policy.concurrency, policy.timeout_s) == (None, 8, 15)
    assert policy.retry == Retry(base_s=2, cap_s=3600, max_age_s=172800, max_attempts=0, rejected_attempts=5)
    assert policy.offline == Offline(after_s=300, disable_after_s=432000)
    assert (policy.dedup_window, policy.backlog_max, policy.headers, policy.paused) == (256, 10**6, {}, False)


def test_objects_may_be_partial() -> None:
    policy = parsed(retry={"base_s": 5}, offline={"after_s": 60}, rate={"limit": 10})
    assert policy.retry == Retry(base_s=5)
    assert policy.offline == Offline(after_s=60)
    assert policy.rate == Rate(limit=10, per="second")


@pytest.mark.parametrize(
    ("rate", "per_second", "burst"),
    [
        ({"limit": 10}, 10, 10), ({"limit": 0.5}, 0.5, 1), ({"limit": 2.5}, 2.5, 3),
        ({"limit": 30, "per": "minute"}, 0.5, 1), ({"limit": 7200, "per": "hour"}, 2, 2),
        ({"limit": 1, "per": "hour", "burst": 4}, 1 / 3600, 4), ({"limit": 10, "burst": 1}, 10, 1),
    ],
)  # fmt: skip
def test_the_burst_is_by_default_the_limit_per_second_rounded_up(
    rate: dict[str, Any], per_second: float, burst: int
) -> None:
    policy = parsed(rate=rate)
    assert policy.rate is not None
    assert policy.rate.per_second == pytest.approx(per_second)
    assert policy.rate.burst_max == burst


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/second", Rate(limit=10)), ("10/s", Rate(limit=10)),
        ("0.5/minute", Rate(limit=0.5, per="minute")),
        ("300/min", Rate(limit=300, per="minute")), ("300/m", Rate(limit=300, per="minute")),
        ("5000/hour", Rate(limit=5000, per="hour")), ("5000/h", Rate(limit=5000, per="hour")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [True, False])
def test_a_rate_may_be_a_text(text: str, rate: Rate, strict: bool) -> None:
    """The text may also be put straight into the bucket; its burst is the usual one."""
    policy, warnings = parse(json.dumps({"url": URL, "rate": text}).encode(), strict=strict)
    assert (policy.rate, warnings) == (rate, [])


@pytest.mark.parametrize(
    "rate", [10, True, "10", "10/fortnight", "ten/second", "10/second burst 5", "", "/s"]
)
def test_an_invalid_rate_is_refused_with_an_example(rate: object) -> None:
    (problem,) = problems(rate=rate)
    assert problem.startswith("rate: ")
    assert problem.endswith('write it as "10/second", or as {"limit": 10, "per": "second", "burst": 20}')


def test_several_rates_hold_together() -> None:
    """A limit without a burst allows a tenth of it at once: one second's worth would hide the others."""
    hourly = {"limit": 1000, "per": "hour", "burst": 40}
    policy = parsed(rate=["10/second", {"limit": 500, "per": "minute"}, hourly])
    assert policy.rates == (
        Rate(limit=10, burst=10), Rate(limit=500, per="minute", burst=50),
        Rate(limit=1000, per="hour", burst=40),
    )  # fmt: skip
    assert policy.rate == policy.rates[2], "the slowest"
    assert parsed(rate=["10/second"]).rates == (Rate(limit=10),)
    assert parsed(rate=["1000000/second", "1000000/hour"]).rates[1].burst_max == 100_000


def test_a_margin_lowers_limit_and_burst() -> None:
    rate = Rate(limit=10, burst=20, margin=0.9)
    assert (rate.per_second, rate.burst_max) == (9, 18)
    assert Rate(limit=0.5, margin=0.1).burst_max == 1
    assert Rate(limit=10, margin=0.9).burst_max == 9


@pytest.mark.parametrize(
    ("rate", "problem"),
    [
        ([], "rate: has no limit in its list; write null for the default of the nodes"),
        (["1/s"] * 5, "rate: has 5 limits, at most 4 are allowed; leave some out"),
        (
            ["1/s", "x"],
            "rate[1]: 'x' is not a rate; write it as \"10/second\", or as "
            '{"limit": 10, "per": "second", "burst": 20}',
        ),
        (["1/s", {"limit": 0}], "rate[1].limit: must be a number from 0.000001 to 1000000"),
        (["10/s", "1/s", "10/second"], "rate[2]: is the same limit as rate[0]; leave one out"),
        ({"limit": 1, "margin": 2}, "rate.margin: must be a number from 0.1 to 1"),
        (
            ["1/s", {"limit": 2, "x": 1}],
            "rate[1].x: unknown member; only burst, limit, margin or per can be here",
        ),
    ],
)
def test_each_limit_of_a_list_is_judged(rate: object, problem: str) -> None:
    assert problems(rate=rate) == [problem]


def test_a_long_text_is_not_a_rate_in_a_short_sentence() -> None:
    (problem,) = problems(rate="9" * 60_000)
    assert len(problem) < 150


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"url": 1}, "url"), ({"url": ""}, "url"), ({"url": "https://" + "x" * 4096}, "url"),
        ({"events": ">"}, "events"), ({"events": [1]}, "events"), ({"order": "loose"}, "order"),
        ({"rate": {}}, "rate"), ({"rate": {"limit": 0}}, "rate.limit"),
        ({"rate": {"limit": -1}}, "rate.limit"), ({"rate": {"limit": 1e7}}, "rate.limit"),
        ({"rate": {"limit": 5e-324}}, "rate.limit"), ({"rate": {"limit": 1, "per": "day"}}, "rate.per"),
        ({"rate": {"limit": 1, "burst": 0}}, "rate.burst"),
        ({"rate": "0/second"}, "rate.limit"), ({"rate": "2000000/s"}, "rate.limit"),
        ({"rate": {"limit": 1, "burst": 1.5}}, "rate.burst"),
        ({"concurrency": 0}, "concurrency"), ({"concurrency": 257}, "concurrency"),
        ({"timeout_s": 0.05}, "timeout_s"), ({"timeout_s": 61}, "timeout_s"),
        ({"retry": {"base_s": 0.01}}, "retry.base_s"), ({"retry": {"cap_s": 1}}, "retry.cap_s"),
        ({"retry": {"max_age_s": 59}}, "retry.max_age_s"),
        ({"retry": {"max_age_s": 432001}}, "retry.max_age_s"),
        ({"retry": {"max_attempts": -1}}, "retry.max_attempts"),
        ({"retry": {"rejected_attempts": 0}}, "retry.rejected_attempts"), ({"retry": []}, "retry"),
        ({"offline": {"after_s": 0}}, "offline.after_s"), ({"dedup_window": 15}, "dedup_window"),
        ({"dedup_window": 4097}, "dedup_window"), ({"backlog_max": 0}, "backlog_max"),
        ({"paused": 1}, "paused"), ({"headers": {"a": 1}}, "headers"), ({"headers": []}, "headers"),
        ({"secrets": "x"}, "secrets"), ({"alerts": {"behind_percent": 0}}, "alerts.behind_percent"),
        ({"alerts": {"failing": 60}}, "alerts.failing"), ({"alerts": 5}, "alerts"),
        ({"proxy": 7}, "proxy"), ({"proxy": ""}, "proxy"),
        ({"proxy": "http://proxy:3128"}, "proxy"), ({"tls": "a" * 65}, "tls"), ({"tls": "a\n"}, "tls"),
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_is_named(members: dict[str, Any], field: str) -> None:
    (problem,) = problems(**members)
    assert problem.startswith(field)


@pytest.mark.parametrize(
    ("members"),
    [
        {"timeout_s": 0.1}, {"timeout_s": 60}, {"retry": {"base_s": 0.05, "cap_s": 0.05}},
        {"retry": {"max_age_s": 60}}, {"retry": {"max_age_s": 432000}}, {"dedup_window": 16},
        {"dedup_window": 4096}, {"concurrency": 1}, {"concurrency": 256}, {"rate": {"limit": 1e-6}},
        {"rate": None}, {"proxy": None}, {"tls": None}, {"proxy": "a" * 64, "tls": "a_B-9"},
    ],
)  # fmt: skip
def test_the_bounds_themselves_are_allowed(members: dict[str, Any]) -> None:
    parsed(**members)


def test_a_single_error_names_every_field_that_is_wrong() -> None:
    wrong = problems(
        url=1, order="loose", retry={"base_s": "x"}, nonsense=1, headers={"host": "x"}, secrets=["x"],
        events=["a..b"],
    )  # fmt: skip
    assert [each.split(":")[0] for each in wrong] == [
        "nonsense", "url", "order", "retry.base_s", "headers.host", "secrets[0]", "events[0]",
    ]  # fmt: skip


def test_a_missing_url_is_said() -> None:
    with pytest.raises(InvalidPolicy, match="url: required, but missing"):
        parse(b"{}", strict=False)


@pytest.mark.parametrize(
    "url",
    [
        "example.com", "ftp://example.com", "//example.com", "https://", "https:///x",
        "https://u:p@example.com", "https://u@example.com", "https://example.com/a b",
        "https://example.com/\n", "https://exa\tmple.com",
        "https://example.com:99999", "https://example.com:0", "https://[::1", "https://example.com/\x7f",
    ],
)  # fmt: skip
def test_urls_that_cannot_be_called(url: str) -> None:
    assert problems(url=url)[0].startswith("url: ")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hush@ex℀mple.com/", "https://host:hush/", "https://host:hush@x:y/", "https://[hush]/",
        "https://user:hush@[v1.hush]/", "https://user:hush@host/", "https://host:-hush/",
    ],
)  # fmt: skip
def test_a_problem_of_a_url_is_reported_without_quoting_it(url: str) -> None:
    assert "hush" not in "".join(problems(url=url))


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://[::1]/x?y=1#z", "HTTPS://Example.com"])
def test_urls_that_may_be_called_where_the_operator_allows(url: str) -> None:
    assert parsed(url=url).url == url


@pytest.mark.parametrize("pattern", [">", "*", "order.>", "order.*", "*.created", "a.*.c.>", "A-1._x"])
def test_good_patterns(pattern: str) -> None:
    assert parsed(events=[pattern]).events == (pattern,)


def test_no_pattern_means_direct_sends_only() -> None:
    assert parsed(events=[]).events == ()


@pytest.mark.parametrize(
    "pattern", ["", ".", "a.", ">.a", "a.>.b", "a*", "a b", "a..b", "a\n", ".".join("t" * 17), "x" * 201]
)
def test_bad_patterns(pattern: str) -> None:
    assert problems(events=["ok", pattern])[0].startswith("events[1]: ")


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_"), ("whsk_abcde", "base64"), ("whsec_", "24 to 64"),
        ("whsk_" + "A" * 42, "32 or 64"), ("whs512_" + "A" * 88, "24 to 64"), ("whpk_abc", "public key"),
        ("whsec_$$$$", "base64"), ("whsec_" + "A" * 31, "24 to 64"), ("whsec_" + "A" * 88, "24 to 64"),
        ("whsec_ä", "base64"), ("whsec_" + "A" * 33, "base64"),
    ],
)  # fmt: skip
def test_bad_secrets_are_refused_and_not_repeated(secret: str, why: str) -> None:
    (problem,) = problems(secrets=[SECRET, secret])
    assert problem.startswith("secrets[1]: ")
    assert why in problem
    assert secret not in problem


def test_good_secrets_padded_or_not() -> None:
    parsed(secrets=[SECRET, "whsec_" + "A" * 34, "whsec_" + "A" * 34 + "==", "whsec_" + "A" * 86])


@pytest.mark.parametrize(
    "name",
    ["webhook-id", "Webhook-X", "angarium-x", "Host", "Content-Length", "transfer-encoding", "TE",
     "webhook_signature", "Angarium_Sequence", "transfer_encoding"],
)  # fmt: skip
def test_headers_that_are_ours(name: str) -> None:
    """CGI, WSGI and others read an underscore as a hyphen."""
    assert problems(headers={name: "x"}) == [f"headers.{name}: set by Angarium itself; leave it out"]


def test_a_header_whose_value_is_not_text_is_named() -> None:
    assert problems(headers={"x-a": "1", "x-b": 2}) == ["headers.x-b: must be a string"]


@pytest.mark.parametrize(("name", "words"), [
    ("user-agent", "or by Angarium"), ("Content-Type", "or by Angarium"), ("traceparent", "or by Angarium"),
    ("Upgrade", "connection"), ("keep-alive", "connection"), ("expect", "connection"),
    ("User_Agent", "or by Angarium"), ("keep_alive", "connection"),
])  # fmt: skip
def test_headers_that_would_not_be_sent_are_refused_and_by_nodes_left_out(name: str, words: str) -> None:
    (problem,) = problems(headers={name: "x"})
    assert problem.startswith(f"headers.{name}: ")
    assert words in problem
    raw = msgspec.json.encode({"url": URL, "headers": {name: "x"}})
    assert parse(raw, strict=False)[1] == [problem]
    assert not is_sent(name, Policy(url=URL))


def test_a_header_of_cloudevents_is_refused_if_the_format_has_it() -> None:
    (problem,) = problems(headers={"CE-Id": "x"}, format="cloudevents")
    assert problem.startswith("headers.CE-Id: belongs to the format cloudevents")
    assert not is_sent("CE-Id", Policy(url=URL, format="cloudevents"))
    assert is_sent("CE-Id", Policy(url=URL, format="cloudevents-structured"))


@pytest.mark.parametrize("secrets", [[], ["whsk_" + "A" * 43 + "="]])
def test_a_handshake_by_hmac_needs_a_secret_that_the_receiver_has(secrets: list[str]) -> None:
    wants = {"url": "https://a.example", "handshake": "hmac", "secrets": secrets}
    with pytest.raises(InvalidPolicy, match="handshake: hmac needs a whsec_ or whs512_ secret"):
        parse(msgspec.json.encode(wants), strict=True)
    for extra in ({"secrets": [*secrets, "whs512_" + "A" * 32]}, {"handshake": "cloudevents"}):
        assert parse(msgspec.json.encode(wants | extra), strict=True)[0].handshake != "none"
    with pytest.raises(InvalidPolicy, match="handshake: must be cloudevents, hmac or none"):
        parse(msgspec.json.encode(wants | {"handshake": "crc"}), strict=True)


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    names = "cloudevents, cloudevents-structured, envelope or raw"
    assert problems(format="xml") == [f"format: must be {names}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"), ("a b", "x"), ("a:", "x"), ("ä", "x"), ("a\r\n", "x"), ("x", "a\r\nb"), ("x", "\0"),
        ("x", "€"), ("x", "y" * 4097),
    ],
)  # fmt: skip
def test_headers_that_would_break_the_request(name: str, value: str) -> None:
    (problem,) = problems(headers={name: value})
    assert problem.startswith("headers")


def test_a_batch_has_limits_with_defaults() -> None:
    found = parse(b'{"url": "https://a.example", "batch": {}}', strict=True)[0].batch
    assert found == BatchLimits(max_events=100, max_bytes=262_144, linger_s=0.0)
    assert parse(b'{"url": "https://a.example"}', strict=True)[0].batch is None


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"max_events": 0}, "batch.max_events: must be a whole number from 1 to 256"),
        ({"max_events": 257}, "batch.max_events: must be a whole number from 1 to 256"),
        ({"max_bytes": 0}, "batch.max_bytes: must be a whole number from 1 to 1048576"),
        ({"linger_s": 61}, "batch.linger_s: must be a number from 0 to 60"),
        ({"most": 3}, "batch.most: unknown member; only linger_s, max_bytes or max_events can be here"),
    ],
)
def test_limits_of_a_batch_are_bounded(members: dict[str, object], problem: str) -> None:
    assert problems(batch=members) == [problem]


def test_a_batch_is_always_an_envelope() -> None:
    parse(b'{"url": "https://a.example", "batch": {}, "format": "envelope"}', strict=True)
    (problem,) = problems(batch={}, format="cloudevents")
    assert problem.startswith("format: a batch is always an envelope")


def test_reserved_members_are_refused_as_such() -> None:
    for name in RESERVED:
        assert problems(**{name: 1}) == [f"{name}: reserved for a later version"]


def test_the_member_that_was_probably_meant_is_named() -> None:
    assert problems(rat="1/s") == ["rat: unknown member; did you mean rate?"]
    assert problems(retry={"cap": 5}) == ["retry.cap: unknown member; did you mean cap_s?"]
    assert problems(signature={"header": "x-signature", "secret": "hush", "prefix": "sha256="}) == [
        "signature.prefix: unknown member; "
        "only algorithm, content, encoding, header, secret, timestamp_header or value can be here"
    ]
    assert problems(**{"rate" * 20: 1}) == [f"{'rate' * 20}: unknown member; check the spelling"]


def test_a_node_reports_unknown_members_and_continues() -> None:
    raw = json.dumps({"url": URL, "colour": "red", "rate": {"limit": 1, "x": 1}, "labels": {}}).encode()
    policy, warnings = parse(raw, strict=False)
    assert policy == Policy(url=URL, rates=(Rate(limit=1),))
    assert warnings == [
        "colour: unknown member; check the spelling", "labels: reserved for a later version",
        "rate.x: unknown member; only burst, limit, margin or per can be here",
    ]  # fmt: skip
    with pytest.raises(InvalidPolicy) as refused:
        parse(raw, strict=True)
    assert refused.value.problems == warnings


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b'"x"', b"{", b"\xff", b'{"url":"\xff"}', b"[" * 10**5])
def test_a_configuration_that_is_not_an_object_is_refused_in_a_sentence(raw: bytes) -> None:
    with pytest.raises(InvalidPolicy, match="configuration: "):
        parse(raw, strict=False)


def test_a_policy_does_not_show_its_secrets() -> None:
    assert repr(parsed(secrets=[SECRET], headers={"authorization": "x"})) == "Policy(…)"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
MEMBERS = st.dictionaries(st.sampled_from([*Policy.__struct_fields__, "x"]), JSON, max_size=6)


@settings(max_examples=40)
@given(MEMBERS, st.booleans())
@example({"url": URL, "headers": {"\udcff": "x"}}, True)
def test_every_text_is_a_policy_or_a_list_of_sentences(members: dict[str, Any], strict: bool) -> None:
    raw = json.dumps({"url": URL} | members).encode()
    try:
        said = parse(raw, strict=strict)[1]
    except InvalidPolicy as refused:
        said = refused.problems or ["nothing"]
    assert all(": " in each for each in said)


UNTIL = "2026-11-23T12:00:00Z"


def test_an_old_secret_has_an_end() -> None:
    (old,) = parsed(old_secrets=[{"secret": SECRET, "until": UNTIL}]).old_secrets
    assert (old.secret, old.until.isoformat()) == (SECRET, "2026-11-23T12:00:00+00:00")
    assert repr(old) == "OldSecret(…)"


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        ([{"secret": SECRET}], "old_secrets[0].until: required, but missing"),
        ([{"secret": SECRET, "until": "2026-11-23T12:00:00"}], "old_secrets[0].until: "),
        ([{"secret": SECRET, "until": "tomorrow"}], "old_secrets[0].until: "),
        ([{"secret": "whsec_hush", "until": UNTIL}], "old_secrets[0].secret: "),
        ([{"secret": SECRET, "until": UNTIL, "from": 1}], "old_secrets[0].from: unknown member"),
        ([{"secret": SECRET, "until": UNTIL}] * 8, "old_secrets: 9 together with secrets, at most 8"),
        ({"secret": SECRET}, "old_secrets: "),
    ],
)
def test_a_bad_old_secret_is_refused_and_not_repeated(old: Any, problem: str) -> None:
    found = problems(secrets=[SECRET], old_secrets=old)
    assert found[0].startswith(problem)
    assert not any("hush" in each or SECRET in each for each in found)
