"""One description of accounts and instructions, and it fits the core and a transaction."""

import numpy as np
import pytest
from msgspec.structs import replace

from authority.solana.vm import Vm, VmRun
from folkmoot.authority.solana import layout, subset
from folkmoot.authority.solana.account import AccountError, read, state_of
from folkmoot.authority.solana.seeds import HashChain
from folkmoot.core import bloom
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.messages import Reason
from folkmoot.core.coordinator.receive import ADDRESS_MAX
from folkmoot.core.coordinator.state import STORED_ROUNDS
from folkmoot.core.quorum import MAX_WITNESSES

RUN = Run(run_id="run", config=CoordinatorConfig(total_steps=5, max_clients=9))


def test_every_reason_of_the_core_is_an_error_of_the_program() -> None:
    assert set(layout.REASONS) == {reason.name for reason in Reason}
    for reason in Reason:
        assert layout.explain(layout.REASONS[reason.name]) == (reason.name, reason.value)
    codes = [*layout.REASONS.values(), *(code for code, _ in layout.ERRORS.values())]
    assert len(set(codes)) == len(codes)


def test_the_places_are_those_of_the_core() -> None:
    assert layout.WITNESSES == MAX_WITNESSES
    assert layout.ROUNDS == STORED_ROUNDS
    assert layout.ADDRESS == ADDRESS_MAX
    assert bloom.bloom_bits(layout.CLIENTS) == layout.BLOOM * 8


def test_every_key_of_a_configuration_is_followed_or_left_out() -> None:
    undecided = set(CoordinatorConfig.__struct_fields__) - subset.FOLLOWED - set(subset.LEFT_OUT)
    assert not undecided, "decide in subset.py whether the program follows these"


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (replace(RUN, config=replace(RUN.config, max_clients=257)), "at most 256"),
        (replace(RUN, config=replace(RUN.config, verification_percent=1)), "no verifiers"),
        (replace(RUN, config=replace(RUN.config, cooldown_time=1e-4)), "a millisecond"),
        (
            replace(
                RUN,
                config=replace(
                    RUN.config,
                    global_batch_size_end=2**20,
                    global_batch_size_warmup_tokens=2**50,
                ),
            ),
            "2\\^61",
        ),
        (replace(RUN, model=Model(checkpoint="s3://" + "x" * 190)), "at most 190 bytes"),
        (replace(RUN, model=Model(start="s3://" + "x" * 260)), "at most 256 bytes"),
        (replace(RUN, model=Model(tokenizer="x" * 4096)), "fit into 4096 bytes"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_a_sentence(run: Run, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        subset.check(run)
    assert any(subset.misfits(run))


def test_a_usual_run_fits() -> None:
    subset.check(RUN)
    assert not any(subset.misfits(RUN))


def test_an_account_that_is_no_run_is_not_read(vm: Vm) -> None:
    data = VmRun(vm, RUN).data
    with pytest.raises(AccountError, match="does not hold a run"):
        read(bytes(len(data)))
    with pytest.raises(AccountError, match="has version 9"):
        read(data[:8] + b"\x09\0\0\0" + data[12:])
    with pytest.raises(AccountError, match="creation did not end"):
        read(data[: layout.GROWTH])
    with pytest.raises(AccountError, match="0 bytes"):
        read(b"")


def test_a_configuration_that_the_program_does_not_compute_with_is_not_believed(vm: Vm) -> None:
    record = np.frombuffer(VmRun(vm, replace(RUN, run_id="other")).data, layout.RUN).copy()
    record["config"]["min_clients"] = 2
    with pytest.raises(AccountError, match="not what the program computes with"):
        state_of(record[0])
    record["config"]["run_len"] = 5
    with pytest.raises(AccountError, match="cannot read the run's configuration"):
        state_of(record[0])


def test_a_chain_of_reveals_ends_where_it_began() -> None:
    chain = HashChain(b"secret", 3)
    last, links = chain.end, 0
    while (before := chain.reveal(last)) is not None:
        last, links = before, links + 1
    assert links == 3
    assert chain.reveal(b"foreign") is None
