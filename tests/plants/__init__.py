"""Receivers as plants: what rules that learn a pace are worth, before one of them goes into the product.

`python -m tests.plants` prints the table of `docs/decisions/pace.md`. `receivers` are the plants, `cases`
says what an oracle would deliver to each, a `sender` keeps the product's rules, `pace` has the rules that
learn, and `trials` gives each of them a score on each plant. Everything happens in the virtual time of a
`timeline`, and follows from a seed.
"""
