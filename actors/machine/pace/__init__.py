"""Rules that learn how much a receiver can bear. They only ever lower what its configuration allows.

Read `pace` first: what is learnt, in a small value that only recorded facts change, and what a rule is.
`rate_headers` reads what receivers say. The rules are in `told` (headers), `after_429`, `concurrency` and
`smart`; `in_force` combines those that a configuration asks for. `docs/decisions/pace.md` says why these.
"""
