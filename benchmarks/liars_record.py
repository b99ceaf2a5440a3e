"""Outcomes, kept in a file so that a stopped benchmark continues, and the table they make."""

from pathlib import Path

import msgspec

import results
from liars_attacks import ATTACKS
from liars_play import AUDITED, ROUNDS, Outcome, play

SEEDS = 3
SIZES = {"1 of 4": (4, 1), "2 of 8": (8, 2), "3 of 10": (10, 3)}


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues."""

    def __init__(self, path: Path, files: tuple[Path, Path]) -> None:
        self.path, self.files = path, files

    def get(self, name: str, attack: str, screen: bool, bits: int, seed: int = 0) -> Outcome:
        key, (n, liars) = [name, attack, screen, bits, ROUNDS, AUDITED, seed], SIZES[name]
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            known, outcome = msgspec.json.decode(line, type=tuple[list[object], Outcome])
            if known == key:
                return outcome
        outcome = play(self.files, n - liars, liars if attack else 0, attack, screen, bits, seed)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode((key, outcome)) + b"\n")
        print(
            f"{name}, {attack or 'honest alone'}, {bits} bits, screened {screen}, seed {seed}: "
            f"{outcome}",
            flush=True,
        )
        return outcome


def row_of(record: Record, name: str, attack: str, screen: bool) -> tuple[float, Outcome]:
    """Per cent above the honest clients alone, and the outcome."""
    bits = ATTACKS.get(attack, 1)
    base, made = record.get(name, "", True, bits).loss, record.get(name, attack, screen, bits)
    return round(100 * (made.loss / base - 1), 1), made


def noise(record: Record, name: str) -> float:
    """The largest difference between runs of honest clients on other data, in per cent."""
    found = [record.get(name, "", True, 1, seed).loss for seed in range(SEEDS)]
    return round(100 * (max(found) / min(found) - 1), 1)


def table(record: Record) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for attack in ATTACKS:
        row = rows.setdefault(attack, {})
        row["1 of 4, not screened, %"] = row_of(record, "1 of 4", attack, False)[0]
        for name in SIZES:
            row[f"{name}, %"], made = row_of(record, name, attack, True)
            row[f"{name}, out in round"] = rounds_of(made.ejected)
    return rows


def losses(record: Record) -> dict[str, float]:
    return {name: results.significant(row_of(record, name, "", True)[1].loss) for name in SIZES}


def rounds_of(ejected: list[int | None]) -> str:
    return ", ".join("never" if one is None else str(one) for one in sorted(ejected, key=str))
