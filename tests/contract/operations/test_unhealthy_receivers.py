"""The doctor's findings about receivers: the worst by name, all counted, healthy ones left out."""

import time
from typing import get_args

import msgspec
import pytest

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy, Rate
from actors.machine import facts as f
from actors.machine.evolve import evolve
from actors.machine.handshake.proof import handshake_key
from actors.machine.numbering import Frontier
from actors.machine.pace.pace import LoweredRate, Pace
from actors.machine.scheduling.phases import Phase
from actors.machine.state import Alert, Handshake, State
from angarium.operations.installation.doctor import receivers
from angarium.operations.installation.doctor.findings import Finding
from angarium.operations.receiver_list.throughput import Bottleneck, Counts, RecentCounts
from streams.installation.topology import Names
from streams.journal_feed.recent_flushes import RecentFlushes
from streams.nats.errors import NotPermitted
from streams.nats.jetstream import JetStream
from streams.observation.receiver_snapshots import BacklogCount, ReceiverSnapshot
from tests.contract.observation.snapshots import disabled, put, waits, write
from tests.contract.support.servers import RealServer, Server
from tests.support.installation import installation, publish

HOUR = 3600.0
NOW = time.time()


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are read minutes before the last of the tests begins."""
    monkeypatch.setattr(f"{__name__}.NOW", time.time())


@pytest.fixture
def server(nats_url: str) -> Server:
    """Only the real server has such consumers; nothing of the protocol rests on them."""
    return RealServer(nats_url)


async def told(js: JetStream, names: Names) -> list[Finding]:
    return await receivers.check_receivers(js, installation(names.prefix))


async def test_unhealthy_receivers_are_named_the_worst_first(js: JetStream, names: Names) -> None:
    await put(js, names, waits("acme.behind", NOW - 3 * HOUR))
    await put(js, names, waits("acme.paused", NOW - HOUR), b'{"url":"https://x.example/","paused":true}')
    await put(js, names, waits("acme.throttled", NOW - 60, throttled_until=NOW + HOUR))
    await put(js, names, waits("acme.failing", NOW - 60, failing_since=NOW - 120))
    pinged = b'{"url":"https://x.example/","offline":{"ping":true}}'
    await put(js, names, waits("acme.offline", NOW - 60, failing_since=NOW - HOUR), pinged)
    await put(js, names, disabled("acme.gone", NOW))
    raw = b'{"url":"https://x.example/","handshake":"cloudevents"}'
    unproven = Handshake(key=handshake_key(parse(raw, strict=False)[0]), failures=3, failing_since=NOW - 120)
    await put(js, names, waits("acme.unproven", NOW - 60, handshake=unproven), raw)
    await put(js, names, State(receiver="acme.well", opened=True))
    await put(js, names, waits("acme.busy", NOW - 5, failing_since=NOW - 5))
    await write(js, names, disabled("acme.removed", NOW))
    findings = await told(js, names)
    assert [each.level for each in findings] == ["warning"] * 8
    assert all(each.ok for each in findings)
    assert findings[0].text == (
        "7 of 9 receivers are unhealthy (as of 0s ago): "
        "1 disabled, 1 unverified, 1 offline, 1 failing, 1 throttled, 2 behind"
    )
    assert [each.text for each in findings[1:]] == [
        "acme.gone has been disabled for 2h (it answered 410); 1 event waits, the oldest for 1h",
        "acme.unproven has not proved itself for 2m; 1 event waits, the oldest for 1m",
        "acme.offline is offline, failing for 1h, and gets pings; 1 event waits, the oldest for 1m",
        "acme.failing has been failing for 2m; 1 event waits, the oldest for 1m",
        "acme.throttled is throttled for 59m more; 1 event waits, the oldest for 1m",
        "acme.behind is far behind; 1 event waits, the oldest for 3h",
        "acme.paused is paused; 1 event waits, the oldest for 1h",
    ]
    assert [(each.remedy, each.command.removeprefix("angarium ")) for each in findings[1:]] == [
        ("resume it when it works again", "receiver resume acme.gone"),
        ("find the reason in its state", "inspect acme.unproven"),
        ("find the reason in its state", "inspect acme.offline"),
        ("find the reason in its state", "inspect acme.failing"),
        ("resume it to end the pause that it asked for", "receiver resume acme.throttled"),
        ("find in its state why it waits for our nodes or its host", "inspect acme.behind"),
        ("resume it to end the pause", "receiver resume acme.paused"),
    ]
    assert findings[1].sentence.endswith(
        ": resume it when it works again (angarium receiver resume acme.gone)"
    )


async def test_a_ping_does_not_renew_the_time_since_when_a_receiver_is_disabled(
    js: JetStream, names: Names
) -> None:
    state = evolve(
        waits("acme.gone", NOW - 3 * HOUR), f.Disabled(receiver="acme.gone", at=NOW - 2 * HOUR, reason="gone")
    )
    pinged = f.AttemptFailed(
        receiver="acme.gone", events=(), at=NOW, attempt=1, error="410", gone=True, kind="ping"
    )
    await put(js, names, evolve(state, pinged))
    findings = await told(js, names)
    assert findings[1].text.startswith("acme.gone has been disabled for 2h (it answered 410)")


async def test_healthy_receivers_are_only_counted(js: JetStream, names: Names) -> None:
    await put(js, names, State(receiver="acme.well", opened=True))
    await js.publish(names.receiver("acme.fresh"), b'{"url":"https://x.example/"}')
    (finding,) = await told(js, names)
    assert (finding.level, finding.text) == (
        "ok",
        "2 receivers are configured; none has failed for a minute or is far behind (as of 0s ago)",
    )


async def test_ten_of_many_are_named_and_all_are_counted(js: JetStream, names: Names) -> None:
    for number in range(30):
        await put(js, names, disabled(f"acme.r{number}", NOW))
    findings = await told(js, names)
    assert len(findings) == 11
    assert findings[0].text == "30 of 30 receivers are unhealthy (as of 0s ago): 30 disabled"
    assert findings[0].sentence.endswith(": list them all (angarium receiver list)")


async def test_a_receiver_that_has_caught_up_since_it_parked_is_healthy(js: JetStream, names: Names) -> None:
    """A receiver that drains its backlog stays parked, and its state only shows when it began to wait."""
    position = await publish(js, names, "acme.drains")
    frontier = Frontier(position=position - 1)
    state = State(
        receiver="acme.drains", opened=True, parked=True, waiting_since=NOW - HOUR, frontier=frontier
    )
    await put(js, names, state)
    (finding,) = await told(js, names)
    assert finding.level == "ok"


async def test_a_receiver_that_names_a_profile_which_nodes_lack_is_unhealthy(
    js: JetStream, names: Names
) -> None:
    """Only nodes know their profiles: the configuration itself is valid."""
    alert = Alert(kind="misconfigured", raised_at=NOW - 60, raised=True)
    await put(js, names, waits("acme.typo", NOW - 60, alerts=(alert,)))
    found = await told(js, names)
    assert [(each.condition, each.text, each.command) for each in found[1:]] == [(
        "misconfigured",
        "acme.typo has had a configuration that no node can use, for 1m; 1 event waits, the oldest for 1m",
        "angarium inspect acme.typo",
    )]  # fmt: skip


async def test_invalid_configurations_are_problems_the_first_of_them_by_name(
    js: JetStream, names: Names
) -> None:
    for number in range(15):
        await js.publish(names.receiver(f"acme.r{number:02}"), b'{"url": 7}')
    findings = await told(js, names)
    assert [each.ok for each in findings] == [False] * 11
    assert findings[0].text.startswith("the configuration of acme.r00 is not in force: url:")
    assert findings[10].text == "5 more configurations are not in force"


async def test_a_user_without_permission_is_told_so(
    js: JetStream, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise NotPermitted("NATS does not permit this user to do that")

    monkeypatch.setattr(js, "consumer_create", refused)
    (finding,) = await told(js, names)
    assert finding.level == "warning"
    assert finding.text == (
        "0 receivers are configured; their state cannot be read: NATS does not permit this user to do that"
    )


def test_a_snapshot_of_a_healthy_receiver_costs_one_comparison() -> None:
    state = State(receiver="acme.well", opened=True, frontier=Frontier(position=7))
    standing, raw = ReceiverSnapshot("acme.well", 0, state), b'{"url":"https://x.example/"}'
    assert receivers.unhealthy_receiver(standing, state, b"never parsed", NOW) is None
    failing = msgspec.structs.replace(state, failing_since=NOW - HOUR)
    found = receivers.unhealthy_receiver(standing, failing, raw, NOW)
    assert found is not None
    assert found.condition == "offline"


def test_time_after_a_failure_of_the_node_is_not_reported() -> None:
    refused = f.AttemptFailed(receiver="acme.well", events=(), at=NOW - HOUR + 5, attempt=2, ours=True)
    state = State(receiver="acme.well", opened=True, failing_since=NOW - HOUR, last=refused)
    raw = b'{"url":"https://x.example/"}'
    assert receivers.unhealthy_receiver(ReceiverSnapshot("acme.well", 0, state), state, raw, NOW) is None


BUSY = Counts(attempts=15, settled=15, busy_ms=14_900.0)
LIMITED: list[tuple[Bottleneck, Phase, Counts, Rate | None]] = [
    ("rate", "active", Counts(attempts=15, settled=15), Rate(limit=1)),
    ("pace", "active", Counts(attempts=1, settled=1), None),
    ("latency", "active", BUSY, Rate(limit=100)),
    ("node", "active", Counts(), Rate(limit=100)),
    ("failure", "backing_off", Counts(), Rate(limit=1)),
    ("throttle", "throttled", Counts(), None),
    ("pause", "paused", Counts(), Rate(limit=1)),
]


@pytest.mark.parametrize(
    ("limited_by", "phase", "counts", "rate"), LIMITED, ids=[each[0] for each in LIMITED]
)
async def test_the_remedy_of_a_receiver_that_is_behind_fits_what_limits_it(
    js: JetStream, names: Names, limited_by: Bottleneck, phase: Phase, counts: Counts, rate: Rate | None
) -> None:
    recent_counts = RecentCounts(RecentFlushes(js, names))
    recent_counts.counts["acme.slow"] = counts
    state = waits("acme.slow", NOW - HOUR)
    if limited_by == "pace":
        state = msgspec.structs.replace(state, pace=Pace(lowered=LoweredRate(0.1, 10.0, NOW)))
    snapshot = ReceiverSnapshot("acme.slow", 0, state)
    policy = Policy(url="https://x.example/", rates=(rate,) if rate else ())
    receiver = receivers.UnhealthyReceiver("behind", NOW - HOUR, phase, snapshot, policy)
    remedy = receivers.remedy_for(receiver, BacklogCount(9, NOW - HOUR), recent_counts, NOW)
    assert ("rate" in remedy[0] + remedy[1]) == (limited_by == "rate")
    assert remedy == receivers.REMEDIES_BEHIND[limited_by]


def test_each_limit_has_a_remedy() -> None:
    assert receivers.REMEDIES_BEHIND.keys() == {*get_args(Bottleneck), None}
    assert {each[0] for each in LIMITED} == {*get_args(Bottleneck)} - {"unknown", "batch"}, (
        "no batch waits that long"
    )
