"""The checks of `doctor` that look at one number."""

from angarium.operations.installation.doctor.nats_server import check_max_payload
from streams.journal.journal import PAYLOAD_MIN


def test_a_server_with_too_small_messages_for_a_batch_is_a_problem() -> None:
    enough, small = check_max_payload("2.14.0", PAYLOAD_MIN), check_max_payload("2.14.0", PAYLOAD_MIN - 1024)
    assert (enough.ok, enough.text) == (True, "nats-server 2.14.0 answers")
    assert not small.ok
    assert small.sentence == (
        "nats-server 2.14.0 has a max_payload of 255 KiB: raise it to 256 KiB, for batches; default: 1 MiB"
    )
