"""The machine of one receiver: pure functions over its facts, and every rule that numbers, orders or paces.

Read `state` first (what is), then `facts` (what happened), `commands` (what can be asked), `decide` and
`evolve`; `owed` chooses what comes next. Nothing here awaits, reads a clock or draws a random number: time
and ids are arguments.
"""
