"""Checks nats-server: the size of messages that it takes, and its clock."""

import time

from angarium import quantities
from angarium.operations.installation.doctor.findings import Finding, ok, problem
from streams.clock import server_time
from streams.installation.topology import Installation
from streams.journal.journal import PAYLOAD_MIN
from streams.nats.jetstream import JetStream

CLOCK_OFF_MAX_S = 2.0
"""Allowed clock error. Verifiers allow five minutes, so seconds are harmless; but they show that NTP is
off."""


def check_max_payload(version: str, max_payload: int) -> Finding:
    """Check that the server takes messages as large as the record of the largest batch."""
    if max_payload < PAYLOAD_MIN:
        text = f"nats-server {version} has a max_payload of {quantities.bytes_text(max_payload)}"
        remedy = f"raise it to {quantities.bytes_text(PAYLOAD_MIN)}, for batches; default: 1 MiB"
        return problem("nats", text, remedy)
    return ok("nats", f"nats-server {version} answers")


async def check_clock(js: JetStream, installation: Installation) -> list[Finding]:
    """Compare our clock with the server's. Raises `Unavailable`, `NotPermitted` and `ApiError`."""
    before = time.time()
    server = await server_time(js, installation.names.deliveries)
    off_s = max(before - server, server - time.time(), 0.0)
    if off_s > CLOCK_OFF_MAX_S:
        text = f"the clocks of this machine and of the NATS server differ by {off_s:.1f} s"
        return [problem("clock", text, "run NTP on both")]
    return [ok("clock", "the clocks of this machine and of the NATS server agree")]
