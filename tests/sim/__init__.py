"""A simulated world of processes, server, network and receivers, in virtual time and by a seed.

`checks`, `mutants` and `scenarios` hold what concerns every event. A subject with rules of its own, such as
`alerts` or `resending`, has all three in a folder of its own.
"""
