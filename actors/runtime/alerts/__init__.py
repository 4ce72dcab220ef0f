"""The watch over the alerts of a shard's receivers. Read `watch` first.

`turns` decides which receivers' alerts change in a round. The machine judges (`actors.machine.alerts`); the
watch asks it every few seconds, and publishes.
"""
