"""Settings of the whole test run."""

from hypothesis import HealthCheck, settings

# What is found must be found again: the same examples each time. `--hypothesis-profile explore` looks further.
# The first text of a clean clone takes a second to draw: Hypothesis builds its tables then. That is no fault of a test.
settings.register_profile("same", derandomize=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.register_profile("explore", settings.get_profile("same"), max_examples=1000, derandomize=False)
settings.load_profile("same")
