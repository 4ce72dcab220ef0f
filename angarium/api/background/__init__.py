"""Background work of an API process.

`jobs` runs jobs, in turns by `spaced_work`; `tail_streams` reads the journal once for all open tails. Read
`jobs` first.
"""
