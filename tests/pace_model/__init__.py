"""A model of receivers, on which the pace rules are chosen before one of them goes into the product.

`python -m tests.pace_model` prints the table of `docs/decisions/pace.md`. `receivers` are the models, called
plants as in control theory. `cases` says what an oracle would deliver to each, a `sender` keeps the product's
rules, `other_rules` has rules that were not chosen, and `trials` gives each rule a score on each plant.
Everything happens in the virtual time of a `timeline`, and follows from a seed.
"""
