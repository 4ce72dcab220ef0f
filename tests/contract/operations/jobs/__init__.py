"""Jobs: replays and redrives that processes of the API work off."""
