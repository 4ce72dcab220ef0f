"""The commands of `angarium`, in folders by subject; slow imports are made where they are used.

Read `main` first: it knows the folder of each command. A command reads its flags, calls an operation
(`angarium.operations`) and prints the result.

- `processes`: what runs until it is stopped: a node, the HTTP API, the ledger's writer.
- `receivers`: configure receivers.
- `events`: send and erase events.
- `dead_letters`: list dead letters, send them again, drop them.
- `live`: what happens now.
- `ledger_queries`: what happened, from the ledger.
- `installation`: set it up, check it, drain its nodes, repair it, and the tokens of the HTTP API.
- `development`: try and measure Angarium on one machine.
- `invocation`: flags, names and errors of all commands.
"""
