"""The HTTP API of a running process, as clients in any language see it."""
