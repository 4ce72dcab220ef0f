"""Alerts about one receiver: when each is raised and when it ends. Read `judging` first.

`health_changes` derives log lines from the same states: a receiver is disabled, offline, back. `returning`
says when one is offline, and how it gets events again once it is back.

`folding` is the part of `evolve` for alerts. An alert is a fact; once the fact is confirmed, the event about
it is published, again and again until the publication is recorded. `actors.runtime.alerts` asks every few
seconds, `streams.alert_events` publishes, `angarium.node.health_log` logs.
"""
