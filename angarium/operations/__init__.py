"""Operations on an installation: put receivers, publish, ask, redrive, check, repair.

Each file has one use case, or a few on the same data. It takes an `Access` (`angarium.access`) and
values, and returns a value: its result, or a `NotDone`. So commands, the HTTP API and tests call it in the
same way, and none of them needs a terminal. Read `failures` first, then `configurations/put` as an example.

- `configurations`: put, show, change or remove the configuration of one receiver.
- `declarations`: the same for a whole file of receivers.
- `receiver_list`: all receivers, with their phase, backlog and throughput.
- `control_requests`: the live state of one receiver, and requests to its owner such as pause or skip.
- `events`: publish events, find where they wait, erase their content.
- `dead_letters`: list dead letters, send them again, drop them.
- `replays`: what a replay would send, and a replay that a command runs itself.
- `jobs`: replays and redrives that continue after the request that began them.
- `live`: attempts as they are recorded.
- `ledger_queries`: the past of receivers and events, from the ledger.
- `installation`: set it up, check it, drain its nodes, repair it.
- `tokens`: create, list and revoke tokens of the HTTP API.
"""
