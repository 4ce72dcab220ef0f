"""The sender tells which failures are shared: those that any receiver of the host would have had."""

import asyncio

import pytest

from actors.configuration.policy import Policy
from actors.ports import Attempt
from angarium.delivery.connections.down_hosts import FAILURES_MIN, PAUSE_MAX_S, DownHosts
from angarium.delivery.http_exchange.transport import Failure, FailureKind, ProfileNames, Request, Response
from angarium.delivery.sender import SILENT_MIN_S, HttpSender
from tests.unit.worlds.values import event
from tests.unit.worlds.virtual_time import in_virtual_time

HERE = Policy(url="https://shared.example/hook")
OK = Response(status=500, headers=(), body=b"", latency_s=0.005, size=0)
SILENT = Failure(kind=FailureKind.TIMEOUT, detail="", latency_s=5.0, unreached=True, silent_s=SILENT_MIN_S)


def failure(kind: FailureKind) -> Failure:
    return Failure(kind=kind, detail="", latency_s=0.1, unreached=True)


class Wire:
    """A transport whose requests all end in the same way."""

    def __init__(self, answer: Response | Failure) -> None:
        self.answer = answer

    async def post(self, request: Request) -> Response | Failure:
        return self.answer

    async def close(self) -> None: ...


def attempt(receiver: str) -> Attempt:
    return Attempt(
        receiver=receiver, policy=HERE, event=event(1), sequence=1, ordinal=1, may_start=lambda: True,
        shapings=(),
    )  # fmt: skip


async def made(answer: Response | Failure, hosts: DownHosts, profiles: ProfileNames) -> None:
    sender = HttpSender(Wire(answer), down_hosts=hosts, profile_names=lambda policy: profiles)
    for number in range(FAILURES_MIN):
        await sender.send(attempt(f"a.r{number}"))


def is_down_after(answer: Response | Failure, profiles: ProfileNames = ProfileNames()) -> bool:  # noqa: B008
    async def run() -> bool:
        hosts = DownHosts()
        await made(answer, hosts, profiles)
        return hosts.is_down(HERE)

    return asyncio.run(run())


class Hanging(Wire):
    """A transport whose requests hang."""

    async def post(self, request: Request) -> Response | Failure:
        await asyncio.Event().wait()
        return self.answer


@pytest.mark.parametrize(
    "answer", [failure(FailureKind.CONNECT), failure(FailureKind.RESOLVE), SILENT], ids=lambda each: each.kind
)
def test_a_failure_before_the_connection_is_shared(answer: Failure) -> None:
    assert is_down_after(answer)


@pytest.mark.parametrize("kind", sorted(set(FailureKind) - {FailureKind.CONNECT, FailureKind.RESOLVE}))
def test_other_failures_are_those_of_one_receiver(kind: FailureKind) -> None:
    """A timeout is one of them if the receiver's own is short, or its names waited for each other."""
    assert not is_down_after(failure(kind))


def test_an_answer_is_never_a_reason() -> None:
    assert not is_down_after(OK)


def test_failures_through_a_proxy_are_not_shared() -> None:
    assert not is_down_after(failure(FailureKind.CONNECT), ProfileNames(proxy="eu"))


@pytest.mark.parametrize("answer", [OK, failure(FailureKind.TLS), failure(FailureKind.PROTOCOL)])
def test_any_contact_ends_it(answer: Response | Failure) -> None:
    async def run() -> tuple[bool, bool]:
        hosts = DownHosts()
        await made(failure(FailureKind.CONNECT), hosts, ProfileNames())
        before = hosts.is_down(HERE)
        await made(answer, hosts, ProfileNames())
        return before, hosts.is_down(HERE)

    assert asyncio.run(run()) == (True, False)


@in_virtual_time
async def test_an_attempt_that_is_cancelled_passes_the_turn_on() -> None:
    """A shard goes to another node; receivers of the shards that stay are tried all the same."""
    hosts, woken = DownHosts(), list[str]()

    def wake(receiver: str) -> None:
        if hosts.may_try(receiver, HERE, has_attempts=False):
            woken.append(receiver)

    await made(failure(FailureKind.CONNECT), hosts, ProfileNames())
    hosts.on_turn(wake)
    await asyncio.sleep(PAUSE_MAX_S)
    assert hosts.may_try("moves.r", HERE, has_attempts=False)
    sending = asyncio.create_task(HttpSender(Hanging(OK), down_hosts=hosts).send(attempt("moves.r")))
    await asyncio.sleep(0.1)
    assert not hosts.may_try("stays.r", HERE, has_attempts=False)
    sending.cancel()
    await asyncio.sleep(0.1)
    assert woken == ["stays.r"]
