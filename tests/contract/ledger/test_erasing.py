"""A ledger that follows forgets what was erased, wherever it is stored, and nothing else."""

import secrets

from actors.machine import facts as f
from streams.erasing.erasures import Erasures, finished
from streams.installation.topology import Names
from streams.nats.jetstream import JetStream
from streams.nats.retry import stream_info
from tests.contract.ledgers import NOW, RECEIVER, Kept, Pen, catch_up, delivered, failed, opens


async def holds(ledger: Kept, mark: str) -> bool:
    return mark.encode() in await ledger.dump()


async def erase(js: JetStream, names: Names, event: str) -> None:
    """Put it on record that the event is erased everywhere else."""
    erasures = Erasures(js, names)
    await erasures.request("acme", event, "ops@host", NOW)
    end = (await stream_info(js, names.journal)).last
    async for request, revision in erasures.pending():
        await erasures.note(finished(request, NOW, end), revision)


async def test_answers_to_an_erased_event_leave_the_ledger(
    js: JetStream, names: Names, pen: Pen, ledger: Kept
) -> None:
    mark, kept = secrets.token_hex(200), secrets.token_hex(200)
    await pen.flush(opens())
    for attempt in range(1, 20):
        await pen.flush(failed(1, NOW + attempt, attempt=attempt, answer=mark))
        await pen.flush(failed(2, NOW + attempt, attempt=attempt, answer=kept))
        if attempt % 5 == 0:
            await catch_up(js, names, ledger)
    await catch_up(js, names, ledger)
    assert await holds(ledger, mark)
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)
    assert await holds(ledger, kept)
    assert await ledger.rows("SELECT count(*), count(answer) FROM attempts") == [(38, 19)]
    assert await ledger.rows("SELECT event FROM deliveries ORDER BY sequence") == [("e1",), ("e2",)]
    await pen.flush(delivered(2, attempt=40))
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT sequence FROM attempts WHERE verdict = 0") == [(2,)]


async def test_a_ledger_that_lags_reads_to_the_end_of_it_first(
    js: JetStream, names: Names, pen: Pen, ledger: Kept
) -> None:
    mark = secrets.token_hex(200)
    await pen.flush(opens())
    await catch_up(js, names, ledger)
    await pen.flush(failed(1, answer=mark))
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert not await holds(ledger, mark)
    assert await ledger.rows("SELECT status, answer FROM attempts") == [(500, None)]


async def test_only_the_tenant_of_the_event_is_meant(
    js: JetStream, names: Names, pen: Pen, ledger: Kept
) -> None:
    other, mark = "acme2.billing", secrets.token_hex(200)
    await pen.flush(opens(other), failed(1, answer=mark, receiver=other), receiver=other)
    await erase(js, names, "e1")
    await catch_up(js, names, ledger)
    assert await holds(ledger, mark)


async def test_an_event_that_was_erased_while_it_waited_says_so(
    js: JetStream, names: Names, pen: Pen, ledger: Kept
) -> None:
    await pen.flush(opens(), failed(1))
    await pen.flush(
        f.Missing(receiver=RECEIVER, at=NOW + 9, first=101, last=101, next_sequence=2, reason=f.ERASED)
    )
    await catch_up(js, names, ledger)
    assert await ledger.rows("SELECT ending, reason FROM deliveries") == [(3, "erased")]
    assert await ledger.rows("SELECT kind FROM changes WHERE kind = 'missing'") == []
