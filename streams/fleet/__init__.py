"""The fleet: which nodes are alive, which shards each owns, and how long a node may rely on that.

Read `lease` first, then `signs_of_life`, `members` and `placement`. `live_members` is the view from outside.
"""
