"""The KV buckets that operators fill: the configurations of receivers, and the tokens of the HTTP API.

Read `stored_configurations` first (read and put), then `known_configurations` (which one is in force).
"""
