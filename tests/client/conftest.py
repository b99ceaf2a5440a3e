"""A small run, once for each authority that may keep its state."""

from functools import partial

import pytest

from support.authorities import AUTHORITIES, PARAMS, EtcdKeeper
from support.small_run import StartRun
from support.small_run import small_run as start


@pytest.fixture(params=PARAMS)
def small_run(request: pytest.FixtureRequest) -> StartRun:
    if request.param == "etcd":
        EtcdKeeper.url = request.getfixturevalue("etcd_url")
    return partial(start, authority=AUTHORITIES[request.param])
