"""The fleet: which nodes are alive, which shard belongs to which, and for how long a node may believe it.

Read `lease` first, then `members` and `rendezvous`. `installation_status` and `receivers_seen` look at the
installation from outside: at its shards and at its receivers.
"""
