"""The house rules: each takes a module and yields what is wrong with it. `tests/test_house.py` runs them."""
