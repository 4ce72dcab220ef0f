"""What holds for all tests: hypothesis judges values, never times, for the machine may be busy.

It draws the same values each time, so that a run fails for what was changed and for nothing else. With
`HYPOTHESIS_PROFILE=search` it draws others.
"""

import os

from hypothesis import settings

settings.register_profile("repeat", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
