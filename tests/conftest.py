"""Settings of the whole test run."""

from hypothesis import settings

# What is found must be found again: the same examples each time. `--hypothesis-profile explore` looks further.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", max_examples=1000, derandomize=False)
settings.load_profile("same")
