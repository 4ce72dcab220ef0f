"""The use cases of a replay: what it would send, and a replay that a command runs itself.

Read `resendable` first: it finds the events of a receiver that can be sent again. `preview` shows them,
`replay` sends them. Replays that are asked for over HTTP are jobs (`angarium.operations.jobs`).
"""
