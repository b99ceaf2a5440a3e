"""Fixtures every test may ask for."""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["support.ray_cluster", "support.servers", "support.stores"]

# A slow machine is not a failing test.
settings.register_profile("folkmoot", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", settings.get_profile("folkmoot"), max_examples=2_000)
settings.load_profile("folkmoot")

# Tests that a script runs in the background inherit a deaf ear to Ctrl-C, and so would what they
# start.
signal.signal(signal.SIGINT, signal.default_int_handler)
