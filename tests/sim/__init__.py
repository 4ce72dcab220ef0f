"""A simulated world of processes, server, network and receivers, in virtual time and by a seed."""
