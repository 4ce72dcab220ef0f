"""Handshakes: a receiver proves that it wants events before the first one is sent. Read `verification` first.

`deciding` has their part of `decide`, `folding` that of `evolve`, and
`in_words` what people see of it.
"""
