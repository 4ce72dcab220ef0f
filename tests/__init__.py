"""Tests: pure ones, contracts, the simulator, edges and whole installations; `support` is what they share."""
