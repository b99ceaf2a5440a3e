"""The audit of a federation: which global model each round made, and what must hold."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from folkmoot.core.federation import Phase, Rules, State, machine
from folkmoot.core.machine import Machine
from folkmoot.simulate.audit import Audit
from folkmoot.simulate.federation.invariants import CHART, INVARIANTS


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a federation is created from."""

    rules: Rules
    initial: bool = False
    # Of an aggregator.
    region: bool = False


class FederationAudit(Audit[Opening, State]):
    name = "federation"
    machine: ClassVar[Machine[Any]] = machine
    config_type = Opening
    invariants = INVARIANTS
    chart = CHART
    final = Phase.FINISHED

    def __init__(self, config: Opening, only: str = "") -> None:
        super().__init__(config, only)
        self.models: dict[int, str] = {}  # round -> digest of the model that it made

    def create(self, config: Opening) -> State:
        return machine.create(config.rules, initial=config.initial, region=config.region)
