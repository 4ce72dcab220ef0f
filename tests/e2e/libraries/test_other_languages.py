"""Libraries of Node verify signatures and read CloudEvents as Angarium sends them.

The packages are pinned in `.ci/samples`, and nothing is fetched: where they are not there, the test is
skipped.
"""

import asyncio
import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from actors.configuration.parsing import parse
from actors.configuration.policy import Policy
from actors.machine.event import Event
from actors.ports import Attempt, BatchAttempt
from angarium.delivery.http_exchange.transport import Failure, Request, Response
from angarium.delivery.sender import HttpSender
from angarium.delivery.signing import public_key
from tests.support.pages.samples import lay_out, missing
from tests.support.processes.commands import PATIENCE_S

BODY = '{"order": 7, "who": "Zoë"}'.encode()
PUT = {"url": "https://a.example"}
KEY = base64.b64encode(bytes(range(32))).decode()
PROGRAM = """
import { createHmac, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";
import { HTTP } from "cloudevents";
import { Webhook as Standard } from "standardwebhooks";
import { Webhook as Svix } from "svix";

const { requests, secret, publicKey, key } = JSON.parse(readFileSync("requests.json"));
const said = {};
for (const [name, { headers, body: encoded }] of Object.entries(requests)) {
  const body = Buffer.from(encoded, "base64");
  const signatures = headers["webhook-signature"].split(" ").map((each) => each.split(","));
  const signed = (number) => Buffer.concat([Buffer.from(`${headers["webhook-id"]}.${number}.`), body]);
  const x = Buffer.from(publicKey.slice("whpk_".length), "base64").toString("base64url");
  const ed25519 = createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x } });
  const of = (version, among) => Buffer.from(among.find(([given]) => given === version)[1], "base64");
  const fixed = headers["angarium-signature"].split(" ").map((each) => each.split(","));
  const hmac = createHmac("sha512", Buffer.from(key, "base64")).update(signed(headers["webhook-timestamp"]));
  new Standard(secret).verify(body, headers);
  new Svix(secret).verify(body, headers);
  said[name] = {
    ed25519: verify(null, signed(headers["webhook-timestamp"]), ed25519, of("v1a", signatures)),
    fixed: verify(null, signed(headers["angarium-sequence"]), ed25519, of("v1a", fixed)),
    forged: verify(null, signed("1"), ed25519, of("v1a", signatures)),
    sha512: hmac.digest().equals(of("v1s512", signatures)),
    event: name.startsWith("cloudevents") ? HTTP.toEvent({ headers, body: body.toString() }) : null,
  };
}
console.log(JSON.stringify(said));
"""


class Wire:
    """A transport that keeps its last request."""

    async def post(self, request: Request) -> Response | Failure:
        self.request = request
        return Response(status=200, headers=(), body=b"", latency_s=0.0, size=0)

    async def close(self) -> None: ...


def event(number: int) -> Event:
    return Event(position=number, id=f"evt_{number}", stored_at=time.time(), body=BODY, type="order.created")


def alone(policy: Policy) -> Attempt:
    return Attempt(
        receiver="acme.billing", policy=policy, event=event(1), sequence=41, ordinal=1,
        may_start=lambda: True, shapings=(),
    )  # fmt: skip


def together(policy: Policy) -> BatchAttempt:
    return BatchAttempt(
        receiver="acme.billing", policy=policy, events=(event(1), event(2)), sequences=(41, 43), ordinal=1,
        may_start=lambda: True, shapings=(),
    )  # fmt: skip


def sent(attempt: Attempt | BatchAttempt) -> dict[str, Any]:
    """The request of an attempt, as a receiver has it."""
    wire = Wire()
    asyncio.run(HttpSender(wire).send(attempt))
    headers = dict(line.decode().split(": ", 1) for line in wire.request.lines)
    return {"headers": headers, "body": base64.b64encode(wire.request.body).decode()}


@pytest.mark.skipif(bool(missing("node")), reason=missing("node"))
def test_libraries_of_node_verify_every_signature_and_read_every_cloudevent(tmp_path: Path) -> None:
    secrets = [f"whsk_{KEY}", f"whs512_{KEY}", f"whsec_{KEY}"]

    def policy(**members: Any) -> Policy:
        return parse(json.dumps(PUT | {"secrets": secrets} | members).encode(), strict=True)[0]

    forms = ("raw", "envelope", "cloudevents", "cloudevents-structured")
    requests = {form: sent(alone(policy(format=form))) for form in forms}
    requests["batch"] = sent(together(policy(batch={"max_events": 2})))
    assert requests["batch"]["headers"]["angarium-sequence"] == "41-43"
    given = {"requests": requests, "secret": secrets[2], "publicKey": public_key(secrets[0]), "key": KEY}
    lay_out(tmp_path)
    (tmp_path / "requests.json").write_text(json.dumps(given))
    (tmp_path / "verify.mjs").write_text(PROGRAM)
    done = subprocess.run(
        ["node", "verify.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for form in requests:
        verdicts = {name: said[form][name] for name in ("ed25519", "fixed", "forged", "sha512")}
        assert verdicts == {"ed25519": True, "fixed": True, "forged": False, "sha512": True}
    for form in ("cloudevents", "cloudevents-structured"):
        event = said[form]["event"]
        assert (event["id"], event["type"], event["source"]) == ("evt_1", "order.created", "/tenants/acme")
        assert (event["specversion"], event["angariumsequence"]) == ("1.0", "41")
        assert event["data"] == {"order": 7, "who": "Zoë"}
