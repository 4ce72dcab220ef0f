"""Mutants: rules of the design, each taken out by itself; `catalogue` lists all of them."""
