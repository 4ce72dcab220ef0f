"""The checks of `angarium doctor`, a file for each subject, and the alerts that are raised.

Read `findings` first, then `all_checks`, which makes the checks in order. In the other files each `check_…`
returns the findings about its subject.
"""
