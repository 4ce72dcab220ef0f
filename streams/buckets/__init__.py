"""The KV buckets that operators fill: the configurations of receivers, and the tokens of the HTTP API.

Read `receivers` first.
"""
