"""The fleet: which nodes are alive, which shards each owns, and how long a node may rely on that.

Read `lease` first, then `members` and `rendezvous`. `installation_status` and `receivers_seen` look at the
installation from outside: at its shards and at its receivers.
"""
