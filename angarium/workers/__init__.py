"""Several nodes on one machine, the workers, under one supervisor: `angarium node --workers`.

Read `supervisor` first, then `worker` (one of them) and `workers_monitor` (the monitor of all).
"""
