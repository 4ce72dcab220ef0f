"""The detector: doubtful failures wait for a verdict, an outage ends with the first connection."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from actors.configuration.policy import Policy
from actors.machine.outcome import OUTAGE, Answered, Failed, NotSent, Outcome
from actors.ports import Attempt
from angarium.delivery.http_exchange.target import Target
from angarium.delivery.http_exchange.transport import Failure, FailureKind, Request, Response
from angarium.delivery.own_outage.evidence import NETWORKS_MIN
from angarium.delivery.own_outage.outage_detector import FIRST_PROBE_AFTER_S, ROUNDS_PAUSE_S, OutageDetector
from angarium.delivery.sender import HttpSender
from tests.unit.worlds.values import answer, event
from tests.unit.worlds.virtual_time import in_virtual_time

SECRET = "whsec_" + "b2xk" * 8
OK = Response(status=200, headers=(), body=b"", latency_s=0.005, size=0)
LAPSED = Failure(kind=FailureKind.LEASE, detail="the lease expired", latency_s=0.0)
UNREACHED = Failed(error="connect", detail="refused", latency_ms=1.0, unreached=True)


class Network:
    """Hosts by number, those that are `dead`, and whether the node has a network; attempts and probes."""

    def __init__(self) -> None:
        self.is_down = False
        self.dead = set[str]()
        self.probed = list[str]()
        self.proxied = set[str]()
        self.probe_s = 0.01
        self.probes_say_nothing = False
        self.detector = OutageDetector(self.probe, has_own_path=lambda policy: policy.url in self.proxied)
        self.changes = list[bool]()
        self.detector.on_change(lambda: self.changes.append(self.detector.since is not None))
        self.sender = HttpSender(self, detector=self.detector)
        self.failed = UNREACHED

    async def probe(self, tenant: str, target: Target) -> bool | None:
        self.probed.append(target.host)
        await asyncio.sleep(self.probe_s)
        return None if self.probes_say_nothing else self.reaches(target.host)

    def reaches(self, host: str) -> bool:
        return not self.is_down and host not in self.dead

    async def post(self, request: Request) -> Response | Failure:
        """The transport: it tells the detector of each connection."""
        target = request.target
        await asyncio.sleep(0.001)
        proxied = any(url.startswith(target.origin) for url in self.proxied)
        if proxied or target.host.startswith("127.") or self.reaches(target.host):
            if not proxied:
                self.detector.connected(request.receiver, target, "")
            return OK if request.may_start() else LAPSED
        failed = self.failed
        return Failure(
            kind=FailureKind(failed.error), detail=failed.detail, latency_s=failed.latency_ms / 1000,
            unreached=failed.unreached,
        )  # fmt: skip

    async def close(self) -> None:
        """Close nothing, since nothing is open."""

    async def attempt(self, tenant: str, number: int) -> Outcome:
        return await self.to(f"{tenant}.r{number}", f"https://45.0.{number}.1/")

    async def to(self, receiver: str, url: str, **members: Any) -> Outcome:
        given: dict[str, Any] = {"may_start": lambda: True, "kind": "event"} | members
        handshake: Literal["hmac", "none"] = "hmac" if given["kind"] == "handshake" else "none"
        return await self.sender.send(Attempt(
            receiver=receiver, policy=Policy(url=url, handshake=handshake, secrets=(SECRET,)), event=event(1),
            sequence=1, ordinal=1, shapings=(), **given,
        ))  # fmt: skip

    async def all(self, count: int = NETWORKS_MIN, tenants: str = "abc", first: int = 0) -> list[Outcome]:
        numbers = range(first, first + count)
        made = [self.attempt(tenants[each % len(tenants)], each) for each in numbers]
        return await asyncio.gather(*made)


def errors(outcomes: list[Outcome]) -> set[str]:
    return {each.error if isinstance(each, Failed) else "none" for each in outcomes}


async def known() -> Network:
    """A network in which twenty hosts of three tenants were reached."""
    network = Network()
    assert errors(await network.all()) == {"none"}
    return network


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_no_failure_of_an_outage_is_a_receivers_not_even_the_first() -> None:
    network = await known()
    network.is_down = True
    first = await network.all(5)
    assert errors(first) == {OUTAGE}
    assert all(isinstance(each, Failed) and each.is_our_failure for each in first)
    assert network.changes == [True]
    began = now()
    assert errors(await network.all()) == {OUTAGE}
    assert now() - began < FIRST_PROBE_AFTER_S


@in_virtual_time
async def test_a_dead_receiver_of_a_node_that_reaches_others_has_failed_itself() -> None:
    network = await known()
    network.dead = {"45.0.7.1"}
    assert await network.attempt("b", 7) == UNREACHED
    assert (network.changes, len(network.probed)) == ([], 1)


@in_virtual_time
async def test_an_answer_of_any_host_is_the_verdict_at_once() -> None:
    network = await known()
    network.dead = {"45.0.7.1"}
    dead = asyncio.create_task(network.attempt("b", 7))
    await asyncio.sleep(0.1)
    assert not dead.done()
    assert isinstance(await network.attempt("a", 3), Answered)
    assert await dead == UNREACHED
    assert (network.probed, now() < FIRST_PROBE_AFTER_S) == ([], True)


@pytest.mark.parametrize("error", ["tls", "protocol", "headers_too_large"])
@in_virtual_time
async def test_a_host_that_breaks_off_was_reached(error: str) -> None:
    network = await known()
    network.is_down = True
    doubtful = asyncio.create_task(network.attempt("b", 7))
    await asyncio.sleep(0.1)
    network.failed = Failed(error=error, detail="broken", latency_ms=1.0)
    assert await network.attempt("a", 3) == network.failed
    assert await doubtful == UNREACHED


@in_virtual_time
async def test_a_node_that_sends_to_few_places_waits_for_nothing() -> None:
    network = Network()
    await network.all(NETWORKS_MIN - 2)
    network.is_down = True
    began = now()
    assert await network.attempt("a", 3) == UNREACHED
    assert now() - began < 0.01


@in_virtual_time
async def test_dead_receivers_alone_have_one_host_asked_every_five_seconds() -> None:
    network = await known()
    network.dead = {"45.0.7.1", "45.0.8.1"}
    began = now()
    while now() - began < 60:
        assert await network.attempt("b", 7) == UNREACHED
    assert len(network.probed) <= 60 / ROUNDS_PAUSE_S + 1


@in_virtual_time
async def test_an_attacker_with_dead_hosts_of_three_tenants_stops_no_other_tenant() -> None:
    network = await known()
    await network.attempt("victim", 99)
    await network.all()  # The attacker's hosts were reached last, and die all at once.
    network.dead = {f"45.0.{number}.1" for number in range(NETWORKS_MIN)}
    assert errors(await network.all()) == {"connect"}
    assert network.changes == []
    assert isinstance(await network.attempt("victim", 99), Answered)


@in_virtual_time
async def test_the_first_waiting_tenant_that_is_reached_ends_a_false_outage() -> None:
    """A tenant that this node has not sent to yet cannot be asked; its first event is enough."""
    network = Network()
    network.dead = {f"45.0.{number}.1" for number in range(NETWORKS_MIN)}
    assert OUTAGE in errors(await network.all())
    assert errors(await network.all()) == {OUTAGE}
    began, quiet = now(), Policy(url="https://45.0.99.1/")
    assert not network.detector.may_try("quiet.r", quiet)
    await until(lambda: network.detector.may_try("quiet.r", quiet))
    assert now() - began < 0.1
    assert network.changes == [True, False]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # In virtual time.
        await asyncio.sleep(0.01)


@in_virtual_time
async def test_an_outage_ends_with_a_probe_and_can_begin_again() -> None:
    network = await known()
    for _ in range(2):
        network.is_down = True
        assert errors(await network.all(3)) == {OUTAGE}
        assert not network.detector.may_try("a.r0", Policy(url="https://45.0.0.1/"))
        probes = len(network.probed)
        await asyncio.sleep(30)
        assert network.detector.since is not None
        assert 20 < len(network.probed) - probes <= 4 * 31
        assert len(set(network.probed[probes:])) == NETWORKS_MIN
        network.is_down = False
        await until(lambda: network.detector.since is None)
        await asyncio.sleep(ROUNDS_PAUSE_S)
        assert await network.attempt("a", 0) == answer(200)
    assert network.changes == [True, False, True, False]
    assert network.detector.outage_count == 2


@in_virtual_time
async def test_answers_of_this_machine_and_through_a_proxy_prove_nothing() -> None:
    network = await known()
    network.is_down = True
    network.proxied = {"https://45.0.77.1/"}
    made = asyncio.gather(network.attempt("a", 1), network.attempt("a", 2))
    await asyncio.sleep(0.1)
    for url in ("https://127.0.0.5/", "https://45.0.77.1/"):
        assert isinstance(await network.to("a.near", url), Answered)
        assert network.detector.may_try("a.near", Policy(url=url))
    assert errors(list(await made)) == {OUTAGE}
    for url in ("https://127.0.0.5/", "https://45.0.77.1/"):
        assert isinstance(await network.to("a.near", url), Answered)
        assert network.detector.may_try("a.near", Policy(url=url))
    assert network.detector.since is not None
    await asyncio.sleep(10)
    assert not {"127.0.0.5", "45.0.77.1"} & set(network.probed)


@in_virtual_time
async def test_a_silent_connection_is_judged_like_the_others() -> None:
    """A kept connection breaks off or falls silent in an outage; that alone is no evidence for it."""
    network = await known()
    network.failed = Failed(error="timeout", detail="no answer", latency_ms=1.0)
    network.dead = {f"45.0.{number}.1" for number in range(NETWORKS_MIN)}
    network.probes_say_nothing = True
    assert errors(await network.all()) == {"timeout"}
    assert network.changes == []
    network.probes_say_nothing, network.is_down = False, True
    assert errors(await network.all()) == {OUTAGE}


@in_virtual_time
async def test_our_other_failures_do_not_wait() -> None:
    network = await known()
    network.is_down = True
    for error in ("overload", "proxy", "blocked"):
        network.failed = Failed(error=error, detail="", latency_ms=1.0)
        began = now()
        assert await network.attempt("a", 3) == network.failed
        assert now() - began < 0.01


@in_virtual_time
async def test_a_detector_that_is_closed_keeps_no_attempt() -> None:
    network = await known()
    network.is_down = True
    held = asyncio.create_task(network.attempt("a", 3))
    await asyncio.sleep(0.1)
    network.detector.close()
    assert await held == UNREACHED


@in_virtual_time
async def test_a_defect_in_a_probe_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    network = await known()
    probe, broken = network.probe, set[str]()

    async def breaks_once(tenant: str, target: Target) -> bool | None:
        if target.host not in broken:
            broken.add(target.host)
            raise ZeroDivisionError
        return await probe(tenant, target)

    network.detector.probe = breaks_once
    network.is_down = True
    assert OUTAGE in errors(await network.all())
    network.is_down = False
    await until(lambda: network.detector.since is None)
    assert "outage.probe_broken" in [each.getMessage() for each in caplog.records]


@in_virtual_time
async def test_many_tenants_with_dead_hosts_hide_no_other() -> None:
    network = Network()
    network.dead = {f"45.0.{number}.1" for number in range(250)}
    for _ in range(2):
        await network.all()
    assert network.detector.since is not None
    network.probe_s = 2.0
    for number in range(200):
        assert not network.detector.may_try(f"evil{number}.r", Policy(url=f"https://45.0.{number}.1/"))
    began = now()
    assert not network.detector.may_try("quiet.r", Policy(url="https://45.0.255.1/"))
    await until(lambda: network.detector.since is None)
    assert now() - began < 15


@in_virtual_time
async def test_an_attempt_that_was_not_sent_says_nothing() -> None:
    network = await known()
    network.is_down = True
    network.proxied = {"https://45.0.77.1/"}
    doubtful = asyncio.create_task(network.attempt("a", 3))
    await asyncio.sleep(0.1)
    outcome = await network.to("a.r", "https://45.0.77.1/", may_start=lambda: False)
    assert isinstance(outcome, NotSent)
    assert not doubtful.done()


@in_virtual_time
async def test_handshakes_are_judged_like_attempts() -> None:
    network = await known()
    unproven = await network.to("a.r0", "https://45.0.0.1/", kind="handshake")
    assert errors([unproven]) == {"unproven"}
    network.is_down = True
    assert errors([await network.to("a.r0", "https://45.0.0.1/", kind="handshake")]) == {OUTAGE}
