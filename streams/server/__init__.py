"""nats-server as a child process, for `dev`, `demo`, benchmarks and tests.

Read `embedded` first; `child` and `watchdog` make sure that no child outlives its parent.
"""
