"""The fleet: which nodes are alive, which shard belongs to which, and for how long a node may believe it.

Read `lease` first, then `members` and `rendezvous`.
"""
