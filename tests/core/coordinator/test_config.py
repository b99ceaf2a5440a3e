"""`run.toml`: every rule of the reference's table, and what a whole file holds."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core.config import ConfigError, all_broken
from folkmoot.core.coordinator import Run, apply, create, decode, decode_run, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.changes import same_work
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.schedule import Constant, Cosine, WarmupStableDecay

WHOLE = """
run_id = "consilience"

[config]
warmup_time = 3600
cooldown_time = 120
epoch_time = 100_000
max_round_train_time = 360
round_witness_time = 5
min_clients = 16
init_min_clients = 16
witness_nodes = 0
global_batch_size_start = 12288
global_batch_size_end = 32768
global_batch_size_warmup_tokens = 549_755_813_888
verification_percent = 0
total_steps = 325_000
waiting_for_members_extra_time = 10

[model]
max_seq_len = 2048
checkpoint = "s3://consilience/checkpoints"

[model.lr]
type = "warmup_stable_decay"
base_lr = 2e-4
warmup_steps = 2000
stable_steps = 161_000
cosine_decay_steps = 150_000
cosine_decay_final_lr = 2e-5
linear_decay_steps = 12_000
"""


def run(**config: Any) -> Run:
    return Run(run_id="run", config=CoordinatorConfig(**{"total_steps": 9, **config}))


def test_the_file_of_a_large_public_run_is_read() -> None:
    for name in ("run.toml", "state.toml"):
        whole = decode_run(WHOLE, name)
        assert whole.config.min_clients == whole.config.clients_to_begin == 16
        assert whole.config.batch_size_end == 32768
        assert isinstance(whole.model.lr, WarmupStableDecay)
        assert whole.model.lr.lr(2000) == 2e-4
        assert decode(encode(create(whole, 0))).run == whole


def test_only_what_the_owner_alone_can_know_is_required() -> None:
    least = decode_run('run_id = "r"\nconfig.total_steps = 1\n')
    assert least == Run(run_id="r", config=CoordinatorConfig(total_steps=1))
    assert not list(all_broken(least))
    with pytest.raises(ConfigError) as caught:
        decode_run("[config]\n")
    assert [p.key for p in caught.value.problems] == ["config.total_steps", "run_id"]


RULES = [
    ("epoch_time = 0", "epoch_time"),
    ("epoch_time = -1", "epoch_time"),
    ("epoch_time = inf", "epoch_time"),
    ("epoch_time = nan", "epoch_time"),
    ("epoch_time = 500\nwarmup_time = 500", "warmup_time"),
    ("warmup_time = -0.5", "warmup_time"),
    ("max_round_train_time = 0", "max_round_train_time"),
    ("epoch_time = 500\nmax_round_train_time = 500", "max_round_train_time"),
    ("round_witness_time = 0", "round_witness_time"),
    ("cooldown_time = 0", "cooldown_time"),
    ("health_check_timeout = 0", "health_check_timeout"),
    ("waiting_for_members_extra_time = -1", "waiting_for_members_extra_time"),
    ("min_clients = 0", "min_clients"),
    ("min_clients = 20\nmax_clients = 19", "min_clients"),
    ("min_clients = 4\ninit_min_clients = 3", "init_min_clients"),
    ("init_min_clients = 10_001", "init_min_clients"),
    ("max_clients = 0\nmin_clients = 1", "max_clients"),
    ("max_clients = 65_536", "max_clients"),
    ("global_batch_size_start = 0", "global_batch_size_start"),
    ("global_batch_size_start = 8\nglobal_batch_size_end = 7", "global_batch_size_end"),
    ("global_batch_size_warmup_tokens = -1", "global_batch_size_warmup_tokens"),
    ("total_steps = 0", "total_steps"),
    ("total_steps = 4_294_967_296", "total_steps"),
    ("min_clients = 4\nwitness_nodes = 5", "witness_nodes"),
    ("min_clients = 40\nwitness_nodes = 33", "witness_nodes"),
    ("witness_nodes = -1", "witness_nodes"),
    ("verification_percent = 101", "verification_percent"),
    ("delay = -1", "delay"),
    ("delay = 3", "delay"),
    ("rounds_per_epoch = 0", "rounds_per_epoch"),
    ("rounds_per_epoch = 40_000", "rounds_per_epoch"),
    (f"rounds_per_epoch = {10**400}", "rounds_per_epoch"),
    (f"warmup_time = {10**400}", "warmup_time"),
    (f"epoch_time = {10**400}", "epoch_time"),
    ("work_by_speed = 1", "work_by_speed"),
]


@pytest.mark.parametrize(("text", "key"), RULES, ids=[text[:50] for text, _ in RULES])
def test_a_rule_that_does_not_hold_is_reported_at_its_key(text: str, key: str) -> None:
    if "total_steps" not in text:
        text += "\ntotal_steps = 9"
    with pytest.raises(ConfigError) as caught:
        decode_run(f'run_id = "r"\n[config]\n{text}\n')
    keys = {problem.key for problem in caught.value.problems}
    assert f"config.{key}" in keys
    line = next(n for n, row in enumerate(text.splitlines(), 3) if row.startswith(key))
    assert line in {problem.line for problem in caught.value.problems}
    if key != "max_clients":  # the others also exceed that many clients
        assert keys == {f"config.{key}"}


@pytest.mark.parametrize(
    "text",
    [
        "epoch_time = 500\nwarmup_time = 0",
        "min_clients = 2\nwitness_nodes = 2",
        "min_clients = 32\nwitness_nodes = 32",
        "epoch_time = 1\nrounds_per_epoch = 3",  # rounds count then, not time
        "waiting_for_members_extra_time = 0",
        "max_clients = 65_535\ninit_min_clients = 65_535",
        "delay = 2",
    ],
)
def test_what_is_just_allowed_is_allowed(text: str) -> None:
    decode_run(f'run_id = "r"\n[config]\ntotal_steps = 9\n{text}\n')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('run_id = ""', ["run_id"]),
        (f'run_id = "{"x" * 65}"', ["run_id"]),
        ('run_id = "r"\nmodel.max_seq_len = 0', ["model.max_seq_len"]),
        (f'run_id = "r"\nmodel.start = "{"x" * 1025}"', ["model.start"]),
        (f'run_id = "r"\nmodel.checkpoint = "{"x" * 1025}"', ["model.checkpoint"]),
        ('run_id = "r"\nmodel.lr = { type = "constant" }', ["model.lr.base_lr"]),
        (
            'run_id = "r"\nmodel.lr = { type = "constant", base_lr = nan, warmup_steps = -1 }',
            ["model.lr.base_lr", "model.lr.warmup_steps"],
        ),
        ('run_id = "r"\nmodel.lr = { type = "cosin", base_lr = 1 }', ["model.lr.type"]),
        ('run_id = "r"\nmodel.lr = { type = "cosine", base_lr = 1 }', ["model.lr.total_steps"]),
        ('run_id = "r"\nmin_clients = 1', ["min_clients"]),
        ('run_id = "r"\nmodel.tokenizer = "\\u001b[2J"', ["model"]),
        ('run_id = "r"\nmodel.data = { type = "text", paths = ["ok", "a\\u009b1A"] }', ["model"]),
    ],
)
def test_the_other_tables_have_rules_too(text: str, expected: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_run(f"{text}\nconfig.total_steps = 9\n")
    assert [problem.key for problem in caught.value.problems] == expected


def test_hints_name_the_nearest_key() -> None:
    text = 'run_id = "r"\nmin_clients = 1\n[config]\ntotal_stpes = 9\n[model.lr]\ntype = "cosin"\n'
    with pytest.raises(ConfigError) as caught:
        decode_run(text, "state.toml")
    assert str(caught.value) == (
        "state.toml has 4 problems:\n"
        "  line 2: min_clients: unknown key (did you mean 'config.min_clients'?)\n"
        "  line 3: config.total_steps: required, and missing\n"
        "  line 4: config.total_stpes: unknown key (did you mean 'total_steps'?)\n"
        "  line 6: model.lr.type: unknown value 'cosin'; expected one of constant, cosine, linear,"
        " warmup_stable_decay (did you mean 'cosine'?)"
    )


def test_more_tokens_than_can_be_counted_are_refused() -> None:
    huge = run(total_steps=2**31, global_batch_size_start=2**30)
    assert [rule.field for rule in all_broken(huge)] == ["config"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.integers(-1, 5) | st.integers()
            for name in CoordinatorConfig.__struct_fields__
            if name not in ("work_by_speed", "screening")
        },
    )
)
def test_every_configuration_that_passes_the_rules_can_be_encoded(config: dict[str, Any]) -> None:
    try:
        made = run(**config)
    except OverflowError:  # a time beyond what a float holds; a file cannot say that
        return
    paused = apply(create(run(), 0), m.Pause(), 0, 0).state
    after, effects = apply(paused, m.Update(made), 0, 0)
    if any(all_broken(made)):
        assert effects == (m.refusal(m.Reason.BadConfig),)
    else:
        assert decode(encode(after)) == after


def test_members_build_anew_for_another_model_or_delay_and_for_nothing_else() -> None:
    old = run()
    assert same_work(old, replace(old, config=replace(old.config, total_steps=9, min_clients=2)))
    for changed in (
        replace(old, config=replace(old.config, delay=old.config.delay + 1)),
        replace(old, model=replace(old.model, lr=Constant(base_lr=1.0))),
    ):
        assert not same_work(old, changed)


def test_an_update_is_held_to_the_rules_of_every_table() -> None:
    paused = apply(create(run(), 0), m.Pause(), 0, 0).state
    for model in (Model(max_seq_len=0), Model(lr=Constant(base_lr=float("nan")))):
        bad = Run(run_id="run", config=paused.run.config, model=model)
        assert apply(paused, m.Update(bad), 0, 0).effects == (m.refusal(m.Reason.BadConfig),)
    good = Run(
        run_id="run",
        config=paused.run.config,
        model=Model(lr=Cosine(base_lr=1e-3, total_steps=9)),
    )
    assert apply(paused, m.Update(good), 0, 0).state.run == good
