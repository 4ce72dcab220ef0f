"""Ways to receivers: direct, through the operator's proxies, and with TLS settings of their own.

Read `ways` first: what a configuration names becomes a way there. `proxy` connects through a proxy, in
`tunnel` it is asked to; `file_value` reads files again when they change.
"""
