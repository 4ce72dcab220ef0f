"""nats-server as a child process, for `dev`, `demo`, benchmarks and tests.

Read `embedded` first; `child` and `watchdog` see to it that nothing outlives its parent.
"""
