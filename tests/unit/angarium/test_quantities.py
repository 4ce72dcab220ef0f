"""Rates, sizes, instants and addresses as people write them."""

import pytest

from actors.configuration.policy import Rate
from angarium.quantities import BadQuantity, bytes_text, parse_address, parse_rate, parse_size, parse_time
from streams.nats.protocol import rfc3339


@pytest.mark.parametrize(
    ("text", "burst", "expected"),
    [
        ("10/second", None, Rate(limit=10)),
        (" 0.5 / minute ", 3, Rate(limit=0.5, per="minute", burst=3)),
        ("5000/hour", None, Rate(limit=5000, per="hour")),
        ("10/s", None, Rate(limit=10)),
        ("10/sec", 2, Rate(limit=10, burst=2)),
        ("1.5/m", None, Rate(limit=1.5, per="minute")),
        ("300/min", None, Rate(limit=300, per="minute")),
        ("5000/h", None, Rate(limit=5000, per="hour")),
    ],
)
def test_rates(text: str, burst: int | None, expected: Rate) -> None:
    assert parse_rate(text, burst) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "10/d",
        "10/S",
        "10/seconds",
        "10/fortnight",
        "ten/second",
        "-1/second",
        "1/second/minute",
        "1..5/s",
    ],
)
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity, match="is not a rate; write it as 10/second"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "burst"), [("0/second", None), ("2000000/second", None), ("1/hour", 0)])
def test_rates_out_of_bounds(text: str, burst: int | None) -> None:
    with pytest.raises(BadQuantity, match="is not a possible rate; give a limit above 0") as raised:
        parse_rate(text, burst)
    assert "None" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("262144", 262144), ("256KiB", 262144), ("256 kib", 262144), ("1MB", 1_000_000),
        ("2TiB", 2 << 40), ("7B", 7), ("20G", 20_000_000_000),
    ],
)  # fmt: skip
def test_sizes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "KiB", "1.5MiB", "-1", "1iB", "1 MiB each", "1" * 5000])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity, match="is not a size; write bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (256 << 10, "256 KiB"), (5 << 29, "2.5 GiB"), (3 << 40, "3 TiB")],
)
def test_bytes_for_people(count: int, expected: str) -> None:
    assert bytes_text(count) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 1_000_000_000 - 30), ("15m", 1_000_000_000 - 900), ("2h", 1_000_000_000 - 7_200),
        (" 3d ", 1_000_000_000 - 259_200), ("1w", 1_000_000_000 - 604_800),
        ("2026-01-31T12:00:00Z", 1_769_860_800), ("2026-01-31T14:00:00.5+02:00", 1_769_860_800.5),
    ],
)  # fmt: skip
def test_instants(text: str, expected: float) -> None:
    assert parse_time(text, 1_000_000_000) == expected


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("999999999w", "1969"),
        ("0001-01-01T00:00:00+14:00", "1969"),
        ("9999-12-31T23:59:59-10:00", "9999"),
    ],
)
def test_any_instant_can_be_sent_to_the_server(text: str, year: str) -> None:
    assert rfc3339(parse_time(text, 1_000_000_000)).startswith(year)


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2y", "-2h", "yesterday", "2026-01-31", "2026-01-31T12:00:00", "1" * 5000 + "w"]
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity, match="is not a time; write an age"):
        parse_time(text, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)), ("0.0.0.0:0", ("0.0.0.0", 0)), ("[::1]:80", ("::1", 80)),
        ("node-1.example:65535", ("node-1.example", 65535)),
    ],
)  # fmt: skip
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "9464", ":9464", "::1:80", "a:b", "a:65536", "http://a:80", "a:80/"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity, match="is not an address; write it as 127"):
        parse_address(text)
