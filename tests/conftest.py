"""What holds for all tests: hypothesis judges values, never times, for the machine may be busy."""

from hypothesis import settings

settings.register_profile("angarium", deadline=None, print_blob=True)
settings.load_profile("angarium")
