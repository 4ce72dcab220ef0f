"""Filters: which events a receiver gets, by the JSON in their bodies and by their region. Pure.

Read `judging` first. `compiling` makes a filter of an expression in JMESPath, with the operations of `values`
and `functions`, all within the bounds of `work`; `sending_rules` has the rules of all receivers by tenant.
"""
