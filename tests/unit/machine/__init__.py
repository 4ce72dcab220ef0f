"""The machine: every decision about one receiver, without a clock and without the network."""
