"""Receivers: configure them, list them with their health, send control requests to their owners.

- `configurations`: put, show, change or remove one configuration.
- `declarations`: the same for a whole file of receivers.
- `overview`: the list of all receivers, with their phase, backlog and pace.
- `control_requests`: the live state of one receiver, and requests to its owner such as pause or skip.

Read `configurations/put` first.
"""
