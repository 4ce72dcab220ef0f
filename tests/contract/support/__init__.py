"""Support for contract tests: servers that misbehave or die, owners of shards, routers, consumers."""
