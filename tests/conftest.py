"""Fixtures every test may ask for."""

import os
import signal

from hypothesis import HealthCheck, settings

pytest_plugins = ["support.ray_cluster", "support.servers", "support.stores"]

# Tests of four workers share a few cores, also those that start processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A slow machine is not a failing test. `make faults` plays the long profile.
settings.register_profile(
    "folkmoot", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("folkmoot"), max_examples=2_000)
settings.load_profile("folkmoot")

# Tests that a script runs in the background, or `nohup`, inherit a deaf ear to Ctrl-C or to a
# terminal that is gone, and so would what they start. A handler is not inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)
