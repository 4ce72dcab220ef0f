"""Jobs: replays and redrives that go on after the request that began them. Read `plans` first."""
