"""The node's own outage: it can connect to no receiver, so no receiver has failed.

Read `evidence.py` first: what counts as evidence, and when it is enough. `watch.py` waits with doubtful
failures until there is a verdict, and makes probes; `prober.py` makes one; `watched_sender.py` stands before
the sender of a node. The argument is in docs/decisions/own-outage.md.
"""
