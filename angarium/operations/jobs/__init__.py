"""Jobs: replays and redrives that continue after the request that began them. Read `plans` first."""
