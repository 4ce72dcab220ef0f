"""Selects the receivers of an event, among those that subscribe to it, by their regions and filters.

Read `receiver_selection` first; `sending_rules` has the rules of all receivers by tenant, and
`selection_totals` counts the events that were kept from receivers, and the filters that could not be
evaluated.
"""
