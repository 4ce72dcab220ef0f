"""Descriptions of what goes on after a request: live attempts, replays and jobs."""
