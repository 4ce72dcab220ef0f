"""Operations on an installation: put receivers, publish, ask, redrive, examine, repair.

One use case a file. Each takes an `Access` (`angarium.connecting`) and values, and returns values: what was
done, or a `NotDone`. So commands, an HTTP API or a test call them alike, and none knows a terminal. Read
`failures` first, then `receivers/put` as an example.
"""
