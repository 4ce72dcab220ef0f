"""The node's own outage: it can connect to no receiver, so no receiver has failed.

Read `evidence.py` first: what counts as evidence, and when it is enough. `outage_detector.py` waits with
doubtful failures until there is a verdict, and makes probes; `prober.py` makes one. The sender shows it each
outcome that matters. The argument is in docs/decisions/own-outage.md.
"""
