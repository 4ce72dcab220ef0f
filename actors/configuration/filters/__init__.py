"""Filters: which events a receiver gets, by the JSON in their bodies. Pure.

Read `evaluating` first. `compiling` makes a filter of an expression in JMESPath, with the operations of
`values` and `functions`, all within the bounds of `work`.
"""
