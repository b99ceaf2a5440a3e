"""Fixtures every test may ask for."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["support.servers"]

# A slow machine is not a failing test.
settings.register_profile("folkmoot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("folkmoot"), max_examples=2_000)
settings.load_profile("folkmoot")
