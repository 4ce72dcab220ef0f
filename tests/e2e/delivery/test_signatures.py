"""Requests verified as receivers verify them: by third-party packages, with either secret, byte by byte."""

import asyncio
import base64
import hashlib
import hmac
from functools import partial

import pytest
import standardwebhooks

from angarium.demo import sample_payloads
from streams.nats.answers import Answer, Stored, Unanswered
from tests.support.fleet.fleet import Fleet, names
from tests.support.fleet.sink import Request
from tests.support.secrecy import OTHER_SECRET, SECRET

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 200
ROUND = 2000
"""Events that are published before all before them have arrived."""


def secret_of(receiver: str, which: str) -> str:
    """A secret of this receiver alone."""
    return "whsec_" + base64.b64encode(hashlib.sha256(f"{receiver} {which}".encode()).digest()).decode()


def refusals(request: Request, secret: str) -> list[str]:
    """The reason why a receiver with this secret would refuse the request; each body is unique."""
    import svix  # Here: above, each worker would import it, for half a second.

    refused = []
    for package, error in (
        (standardwebhooks, standardwebhooks.WebhookVerificationError),
        (svix, svix.WebhookVerificationError),
    ):
        try:
            package.Webhook(secret).verify(request.body, request.headers)
        except error as why:
            refused.append(f"{package.__name__}: {why}")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    head = f"{request.headers['webhook-id']}.{request.headers['angarium-sequence']}."
    lasting = "v1," + base64.b64encode(hmac.digest(key, head.encode() + request.body, "sha256")).decode()
    if lasting not in request.headers["angarium-signature"].split():
        refused.append("angarium-signature: none by this secret")
    return refused


class Published:
    """Events of the sample payloads, each to one receiver; an onlooker that judges what comes of them."""

    def __init__(self, fleet: Fleet, receivers: int, events: int) -> None:
        self.receivers = [f"t.signed-{number}" for number in range(receivers)]
        self.faults: list[str] = []
        self.arrived: set[str] = set()
        self._fleet = fleet
        self._samples = sample_payloads.load()
        self._events = events
        self._permits = asyncio.Semaphore(AT_ONCE)

    async def configure(self) -> None:
        """Receivers that change their secrets just now: two each, of their own."""
        for receiver in self.receivers:
            secrets = [secret_of(receiver, "new"), secret_of(receiver, "old")]
            await self._fleet.configure([receiver], secrets=secrets)

    async def flow(self) -> None:
        """Publish in rounds, and wait for the end of each."""
        for start in range(0, self._events, ROUND):
            end = min(start + ROUND, self._events)
            await asyncio.gather(*(self._publish(number) for number in range(start, end)))
            await self._fleet.until(partial(self._all_up_to, end), f"{end} events arrived")
            assert not self.faults, self.faults[:3]

    def judge(self, receiver: str, request: Request) -> None:
        """The sink's onlooker."""
        number = int(request.headers["webhook-id"].partition("-")[2])
        sample = self._samples[number % len(self._samples)]
        right = {
            "receiver": receiver == self._receiver(number),
            "body": request.body == sample.body,
            "type": request.headers["angarium-event"] == sample.type,
        }
        faults = [what for what, holds in right.items() if not holds]
        for which in ("new", "old"):
            faults += refusals(request, secret_of(receiver, which))
        self.faults += [f"event {number} to {receiver}: {fault}" for fault in faults]
        self.arrived.add(request.headers["webhook-id"])

    def _all_up_to(self, end: int) -> bool:
        return len(self.arrived) == end or bool(self.faults)

    def _receiver(self, number: int) -> str:
        return self.receivers[number % len(self.receivers)]

    async def _publish(self, number: int) -> None:
        sample = self._samples[number % len(self._samples)]
        headers = {"Nats-Msg-Id": f"{self._events}-{number}", "Angarium-Type": sample.type}
        subject = names.publish_to(self._receiver(number))
        answer: Answer = Unanswered("not yet asked")
        async with self._permits:
            while isinstance(answer, Unanswered):  # Repeated under its id, as any careful producer does.
                answer = await self._fleet.js.publish(subject, sample.body, headers)
        assert isinstance(answer, Stored), answer


@pytest.mark.parametrize(
    ("receivers", "events"), [(20, 400), pytest.param(1000, 50_000, marks=pytest.mark.soak)]
)
async def test_each_body_arrives_as_published_and_verifies_by_either_secret(
    shared_fleet: Fleet, receivers: int, events: int
) -> None:
    published = Published(shared_fleet, receivers, events)
    await published.configure()
    shared_fleet.sink.whose = lambda _: ""  # It takes long to find out among so many connections.
    shared_fleet.sink.onlooker = published.judge
    await published.flow()
    assert shared_fleet.sink.total >= events


async def test_a_receiver_that_changes_its_secret_refuses_nothing_meanwhile(shared_fleet: Fleet) -> None:
    """The receiver switches to the new secret once it sees both; only then is the old one removed."""
    receiver = "t.rotating"
    known, refused, signatures = [SECRET], [], [0]

    def judge(_: str, request: Request) -> None:
        refused.extend(refusals(request, known[-1]))
        signatures.append(len(request.headers["webhook-signature"].split()))
        if signatures[-1] == 2:
            known.append(OTHER_SECRET)

    async def deliver_one() -> None:
        seen = len(signatures)
        await shared_fleet.js.publish(names.publish_to(receiver), b'{"order": 7}')
        await shared_fleet.until(lambda: len(signatures) > seen, "it arrived")
        assert not refused

    shared_fleet.sink.onlooker = judge
    for secrets in ([SECRET], [OTHER_SECRET, SECRET], [OTHER_SECRET]):
        await shared_fleet.configure([receiver], secrets=secrets)
        while signatures[-1] != len(secrets):  # The configuration is not in force yet.
            await deliver_one()
    assert known[-1] == OTHER_SECRET
