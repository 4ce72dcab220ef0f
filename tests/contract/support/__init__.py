"""Parts of the contracts: servers that misbehave or die, owners of shards and routers, consumers."""
