"""The watch over the alerts of a shard's receivers. Read `watch`, its only file.

The machine judges (`actors.machine.alerts`); the watch asks it every few seconds, and publishes.
"""
