"""The installation: set it up, see its nodes, size it, drain a node, accept a loss.

Read `setup` first. `doctor` has the checks of its health.
"""
