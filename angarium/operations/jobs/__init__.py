"""Jobs: replays and redrives that continue after the request that began them. Read `plans` first.

`replay` sends past events again, for a job and for `angarium replay`.
"""
