"""The fleet: which nodes are alive, which shard belongs to which, and for how long a node may believe it.

Read `lease` first, then `members` and `rendezvous`. `status` and `standing` look at the installation from
outside: its shards, and how its receivers do.
"""
