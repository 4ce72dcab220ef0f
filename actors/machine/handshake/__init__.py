"""Handshakes: a receiver proves that it wants events before the first one is sent. Read `proof` first.

`deciding` is the handshake's part of `decide`, `folding` its part of `evolve`, and `in_words` what people see
of it.
"""
