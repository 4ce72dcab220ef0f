"""A URL has one reading here, or none: what is connected to is what was judged, sent and verified."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angarium.delivery.http_exchange.target import InvalidTarget, Target, parse_target

ACCEPTED = [
    ("https://example.com", Target("https", "example.com", 443, "/")),
    ("https://example.com/", Target("https", "example.com", 443, "/")),
    ("HTTPS://Example.COM/Hook", Target("https", "example.com", 443, "/Hook")),
    ("http://example.com:8080/a?b=c&d", Target("http", "example.com", 8080, "/a?b=c&d")),
    ("https://example.com?x=1", Target("https", "example.com", 443, "/?x=1")),
    ("https://example.com:/a", Target("https", "example.com", 443, "/a")),
    ("https://example.com./a", Target("https", "example.com", 443, "/a")),
    ("https://example.com/a#part", Target("https", "example.com", 443, "/a")),
    ("https://example.com/a;b=c/%7Ed", Target("https", "example.com", 443, "/a;b=c/%7Ed")),
    ("https://example.com/grüße?q=ü", Target("https", "example.com", 443, "/gr%C3%BC%C3%9Fe?q=%C3%BC")),
    ('https://example.com/<"a">', Target("https", "example.com", 443, "/%3C%22a%22%3E")),
    ("https://example.com//a/../b", Target("https", "example.com", 443, "//a/../b")),
    ("https://bücher.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
    ("https://ｅｘａｍｐｌｅ。com/", Target("https", "example.com", 443, "/")),
    ("https://hook_1.a-b.example/", Target("https", "hook_1.a-b.example", 443, "/")),
    ("http://localhost:9000/", Target("http", "localhost", 9000, "/")),
    ("https://192.0.2.10/", Target("https", "192.0.2.10", 443, "/")),
    ("https://192.0.2.10./", Target("https", "192.0.2.10", 443, "/")),
    ("https://１９２.0.2.10/", Target("https", "192.0.2.10", 443, "/")),
    ("https://[2001:DB8:0::1]:8443/", Target("https", "2001:db8::1", 8443, "/")),
    ("https://[::ffff:192.0.2.1]/", Target("https", "::ffff:c000:201", 443, "/")),
    ("https://[::FFFF:C000:0201]/", Target("https", "::ffff:c000:201", 443, "/")),
    ("https://[0:0:0:0:0:ffff:0.0.0.1]/", Target("https", "::ffff:0:1", 443, "/")),
]

REFUSED = [
    ("", "https://"),
    ("example.com/hook", "https://"),
    ("ftp://example.com/", "https://"),
    ("file:///etc/passwd", "https://"),
    ("gopher://127.0.0.1:6379/_", "https://"),
    ("https://", "no host"),
    ("https:///path", "no host"),
    ("https:example.com", "no host"),
    ("https://user@example.com/", "user or password"),
    ("https://user:word@example.com/", "user or password"),
    ("https://public.example@127.0.0.1/", "user or password"),
    ("https://example.com\\@127.0.0.1/", "percent-encoded"),
    ("https://example.com/a b", "percent-encoded"),
    ("https://example.com/\r\nx: y", "percent-encoded"),
    ("https://exam\tple.com/", "percent-encoded"),
    ("https://example.com/\x00", "percent-encoded"),
    ("https://example.com/\ud800", "percent-encoded"),
    ("https://example.com:0/", "port 0"),
    ("https://example.com:65536/", "port"),
    ("https://example.com:-1/", "port"),
    ("https://example.com:8a/", "port"),
    ("http://2130706433/", "four decimal numbers"),
    ("http://0x7f000001/", "four decimal numbers"),
    ("http://0x7f.0.0.1/", "four decimal numbers"),
    ("http://127.0.0.0x1/", "four decimal numbers"),
    ("http://017700000001/", "four decimal numbers"),
    ("http://0177.0.0.1/", "four decimal numbers"),
    ("http://127.1/", "four decimal numbers"),
    ("http://127.0.1/", "four decimal numbers"),
    ("http://127.0.0.1.1/", "four decimal numbers"),
    ("http://256.0.0.1/", "four decimal numbers"),
    ("http://127.0.0.01/", "four decimal numbers"),
    ("http://１２７.１/", "four decimal numbers"),
    ("http://127。1/", "four decimal numbers"),
    ("http://a.0x/", "four decimal numbers"),
    ("https://[fe80::1%25eth0]/", "zone id"),
    ("https://[fe80::1%eth0]/", "zone id"),
    ("https://[127.0.0.1]/", "url"),
    ("https://[v1.fe]/", "url"),
    ("https://[::1/", "url"),
    ("https://::1/", "url"),
    ("https://example..com/", "labels"),
    ("https://.example.com/", "labels"),
    ("https://example.com../", "labels"),
    ("https://-a.example/", "labels"),
    ("https://exa%6dple.com/", "labels"),
    ("https://127.0.0.1%2f@example/", "user or password"),
    ("https://exam$ple.com/", "labels"),
    ("https://" + "a" * 64 + ".example/", "labels"),
    ("https://" + "a." * 127 + "ab/", "labels"),
    ("https://bü\u200bcher..example/", "international name"),
    ("https://example.com/" + "a" * 4096, "4096"),
]


@pytest.mark.parametrize(("url", "target"), ACCEPTED)
def test_a_url_is_read_in_one_way(url: str, target: Target) -> None:
    assert parse_target(url) == target


@pytest.mark.parametrize(("url", "remedy"), REFUSED)
def test_a_url_with_two_readings_or_none_is_refused_with_a_remedy(url: str, remedy: str) -> None:
    with pytest.raises(InvalidTarget, match=remedy) as caught:
        parse_target(url)
    assert str(caught.value).startswith("url: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["https://user:hush@ex℀mple.com/", "https://host:hush/", "https://[hush]/", "https://hush\u200bü..b/"],
)
def test_a_problem_is_reported_without_quoting_the_url(url: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        parse_target(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://example.com/", "example.com"),
        ("https://example.com:443/", "example.com"),
        ("http://example.com:443/", "example.com:443"),
        ("https://example.com.:8443/", "example.com:8443"),
        ("https://[::1]/", "[::1]"),
        ("http://[::1]:8080/", "[::1]:8080"),
    ],
)
def test_the_host_header_names_the_port_only_where_it_is_not_the_usual_one(url: str, authority: str) -> None:
    assert parse_target(url).authority == authority


def test_the_path_is_not_shown_since_it_may_hold_a_secret() -> None:
    assert "T0KEN" not in repr(parse_target("https://hooks.example/services/T0KEN?key=T0KEN"))


@given(st.text(max_size=40))
def test_every_accepted_target_is_safe_to_write_into_a_request(text: str) -> None:
    try:
        target = parse_target(f"https://{text}")
    except InvalidTarget:
        return
    written = f"POST {target.path} HTTP/1.1\r\nhost: {target.authority}".encode("ascii")
    assert written.count(b" ") == 3
    assert written.count(b"\n") == 1
    assert parse_target(f"https://{target.authority}{target.path}") == target
