"""Operations on an installation: put receivers, publish, ask, redrive, examine, repair.

Each file has one use case, or a few on the same data. It takes an `Access` (`angarium.connecting`) and
values, and returns a value: its result, or a `NotDone`. So commands, the HTTP API and tests call it in the
same way, and none of them needs a terminal. Read `failures` first, then `receivers/configurations/put` as an
example.
"""
