"""`federation.toml`: defaults, and every mistake named with its line."""

from pathlib import Path

import pytest

from folkmoot.core.config import ConfigError, decode
from folkmoot.federated.coordinator.config import (
    BESIDE_JOURNAL,
    Federation,
    is_host,
    load_federation,
)

SMALL = 'run_id = "x"\n[rounds]\nrounds = 3\n'


def test_only_the_name_and_the_rounds_are_needed() -> None:
    config = decode(SMALL, Federation)
    assert (config.rounds.min_participants, config.rounds.fraction_participants) == (1, 1.0)
    assert (config.rounds.heartbeat_time, config.rounds.heartbeat_timeout) == (10.0, 5.0)
    assert (config.server.host, config.metrics.enable) == ("127.0.0.1", False)


def test_an_unknown_key_is_named_with_its_line_and_its_neighbour() -> None:
    with pytest.raises(ConfigError, match=r"line 4: rounds.epoch: .*did you mean 'epochs'"):
        decode(SMALL + "epoch = 2\n", Federation)


def test_all_mistakes_are_told_at_once() -> None:
    text = SMALL + (
        "quorum = 1.5\nheartbeat_time = 0\n[server]\nport = 70000\n"
        '[security.participants]\nglobal = "zz"\n'
    )
    with pytest.raises(ConfigError) as caught:
        decode(text, Federation)
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {
        "rounds.quorum",
        "rounds.heartbeat_time",
        "server.port",
        "security.participants",
    }


@pytest.mark.parametrize("host", ["localhost", "a.b-c.example", "192.168.0.1", "::1", "fe80::1"])
def test_names_and_addresses_are_hosts(host: str) -> None:
    assert is_host(host)


@pytest.mark.parametrize("host", ["", "1.2.3", "256.1.1.1", "a_b", "-a", "::1::", "a b", "x" * 64])
def test_other_strings_are_not(host: str) -> None:
    assert not is_host(host)
    with pytest.raises(ConfigError, match=r"server\.host"):
        decode(SMALL + f'[server]\nhost = "{host}"\n', Federation)


def test_an_address_with_colons_is_written_in_brackets() -> None:
    config = decode(SMALL + '[server]\nhost = "::1"\nport = 5\n', Federation)
    assert config.server.address == "[::1]:5"


def test_paths_are_taken_from_the_files_own_folder(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    file.write_text('initial_weights = "w"\n' + SMALL)
    config = load_federation(file)
    assert config.initial_weights == str(tmp_path / "w")
    assert config.bucket.url == "coordinator"
    alone = load_federation(file, BESIDE_JOURNAL)
    assert alone.bucket.url == str(tmp_path / "federation-state" / "bucket")


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("max_staleness = 2", "rounds.max_staleness"),
        ("min_participants = 5\nbuffer = 2", "rounds.buffer"),
        ("over_selection = 0.5", "rounds.over_selection"),
        ("min_participants = 60000\nfraction_participants = 0.5", "rounds.min_participants"),
        ("rounds_ = 3", "rounds.rounds_"),
    ],
)
def test_rules_that_cannot_work_are_refused(lines: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode(SMALL + lines + "\n", Federation)
    assert [problem.key for problem in caught.value.problems] == [key]
