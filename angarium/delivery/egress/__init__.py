"""Paths to receivers: direct, through the operator's proxies, and with TLS settings of their own.

Read `paths` first: it turns the names in a configuration into a path. `proxy` connects through a proxy, by
the CONNECT of `tunnel`. Files are read again when they change (`angarium.file_value`).
"""
