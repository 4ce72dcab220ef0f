"""Rules that learn how much a receiver can bear: candidates for the product, and as pure as its machine.

Read `pace` first: a small state, which only recorded facts would change, and what a rule is. `measurement`
gathers outcomes in memory, `rate_headers` reads what receivers say. The rules are in `told` (headers),
`after_429`, `concurrency` and `smart`; `together` combines several.
"""
