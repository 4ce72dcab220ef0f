"""Jobs: replays and redrives that processes of the API run."""
