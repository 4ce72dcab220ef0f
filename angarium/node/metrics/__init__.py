"""The metrics of a node, read at each scrape. Read `node_metrics.py` first."""
