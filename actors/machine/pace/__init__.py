"""Rules that learn how much a receiver can take. They only ever lower what its configuration allows.

Read `pace` first: what is learnt, in a small value that only recorded facts change, and what a rule is.
`quota_headers` reads what receivers say. A rule has the name by which a configuration asks for it: `headers`,
`after_429`, `concurrency` or `smart`; `combined` has all that it asks for. `docs/decisions/pace.md` says why
these.

The learnt pace is also in other places: `actors/memory/pace_measurement.py` measures a receiver, and
`actors/memory/pace_memory.py` says when it is observed; `actors/machine/scheduling/learnt_pace.py` lets the
pace bound the next attempt, and `actors/machine/scheduling/pace_in_words.py` tells it to people.
"""
