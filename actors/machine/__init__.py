"""The machine of one receiver: pure functions over its facts, and every rule that numbers, orders or paces.

    decide(state, policy, command, at, bucket) -> facts   what happens (`decide.py`)
    evolve(state, fact) -> state                          the present (`evolve.py`)
    next_step(state, policy, view, now) -> step           what comes next (`scheduling/next_step.py`)

Recovery is normal running: fold the journal over the snapshot, then ask `next_step`.

Read `state` first, then `facts` (what happened), `commands` (what can be asked), `decide` and `evolve`.
`scheduling` finds the next step; `handshake` and `alerts` have the rules of handshakes and alerts, `pace`
those that learn how much a receiver can take.
Nothing here awaits, reads a clock or draws a random number: time and ids are arguments.

The rules that everything else relies on:

1. Numbers. The next number goes to the next event, in the order of the receiver's subject, that is not a
   duplicate. Every numbered event reaches the journal with the first fact about it or about a later one. So
   every owner that folds the journal assigns the same numbers, and no write precedes a POST.
2. Strict order. Only after a 2xx may the next event start before the fact about this one is confirmed. The
   facts in `NEEDS_NO_CONFIRMATION` hold nothing up; every other one must be confirmed before anything starts.
   Relaxed order has the same numbers: the fact `EventsNumbered` precedes every result of its events and of
   later ones.
3. Everything that influences numbering (window, removal, opening) is state. Only a fact changes it, and that
   is confirmed before anything is posted under it. The fact applies from a position above all events that an
   earlier owner may have posted without a record.
4. Every fact that settles an event carries the token bucket. If tokens are slow to come, the attempt is
   recorded first.
5. A dead letter is a fact first. Once that fact is confirmed, the dead letter is published, again and again
   until its storage is recorded. Facts have one order, so events can be given up, and read for that, before
   earlier facts are confirmed.
6. An actor parks if it has to wait long: its events stay in the stream, and are read again in time.
7. Without a configuration nothing is decided before the leader of the configurations has said whether the
   receiver is gone or unknown. A receiver that was removed and put again is removed first, even if it was put
   at once.
8. If the configuration asks for a handshake, nothing is posted before the success of one about its URL and
   its secrets is confirmed. A handshake has no number, takes a token, and is recorded first.
9. What was learnt about a receiver's pace only ever lowers the limits of its configuration. It is a fact, and
   growth back is a function of time.
"""
