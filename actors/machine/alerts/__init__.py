"""Alerts about one receiver: which are raised, and when one begins or ends. Read `judging` first.

`health_changes` derives log lines from the same states: a receiver is disabled, offline, back.

`folding` has their part of `evolve`. An alert is a fact; the event about it is published once the fact is
confirmed, until that is recorded, too. `actors.runtime.alerts` asks every few seconds, `streams.alert_events`
publishes, `angarium.node.health_log` logs.
"""
