"""Outcomes, kept in a file so that a stopped benchmark continues, and the table they make.

Runs that differ in nothing but their data differ by some per cent, and so do two that begin alike,
once one of them learnt another result. So every attack is tried with several seeds, each beside the
honest clients alone with the same seed: the mean of those differences and their standard deviation.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec

import results
from liars_attacks import ATTACKS
from liars_play import AUDITED, ROUNDS, Outcome, play

SEEDS = 5
SIZES = {"1 of 4": (4, 1), "2 of 8": (8, 2), "3 of 10": (10, 3)}


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues."""

    def __init__(self, path: Path, files: tuple[Path, Path]) -> None:
        self.path, self.files = path, files

    def get(self, name: str, attack: str, screen: bool, bits: int, seed: int) -> Outcome:
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


def compared(
    record: Record, name: str, attack: str, screen: bool, seed: int
) -> tuple[float, Outcome]:
    """Per cent above the honest clients alone, and the outcome."""
    bits = ATTACKS[attack]
    base = record.get(name, "", True, bits, seed).loss
    made = record.get(name, attack, screen, bits, seed)
    return 100 * (made.loss / base - 1), made


def play_all(record: Record, sizes: Sequence[str], seeds: int) -> None:
    """Seed after seed, so that a benchmark that is stopped has some of every row."""
    for seed in range(seeds):
        for name in sizes:
            record.get(name, "", True, 1, seed)
            for attack in ATTACKS:
                for screen in (True, False) if name == "1 of 4" else (True,):
                    compared(record, name, attack, screen, seed)


def table(record: Record, seeds: int) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for attack in ATTACKS:
        row = rows.setdefault(attack, {})
        for name in SIZES:
            for screen in (False, True) if name == "1 of 4" else (True,):
                pairs = [compared(record, name, attack, screen, seed) for seed in range(seeds)]
                said = name if screen else f"{name}, neither"
                row[f"{said}, %"] = spread([above for above, _ in pairs])
            row[f"{name}, out in round"] = rounds_of([made for _, made in pairs])
    return rows


def innocent(record: Record, seeds: int) -> int:
    """Honest clients that were ejected, in all runs."""
    made = [
        compared(record, n, a, True, s)[1] for n in SIZES for a in ATTACKS for s in range(seeds)
    ]
    return sum(one.innocent for one in made)


def honest(record: Record, seeds: int) -> dict[str, dict[str, object]]:
    """The honest clients alone: their losses, and how much those differ by chance, in per cent."""
    rows: dict[str, dict[str, object]] = {}
    for name in SIZES:
        losses = [record.get(name, "", True, 1, seed).loss for seed in range(seeds)]
        mean = statistics.fmean(losses)
        rows[name] = {
            "loss": results.significant(mean),
            "standard deviation, %": round(100 * statistics.stdev(losses) / mean, 1),
            "largest to smallest, %": round(100 * (max(losses) / min(losses) - 1), 1),
        }
    return rows


def spread(values: list[float]) -> str:
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def rounds_of(outcomes: list[Outcome]) -> str:
    """When liars were ejected, and how many of them never were."""
    when = [one for outcome in outcomes for one in outcome.ejected]
    out = sorted(one for one in when if one is not None)
    never = f"{len(when) - len(out)} of {len(when)} never" if len(out) < len(when) else ""
    first = f"{out[0]}–{out[-1]}" if out and out[0] < out[-1] else "".join(map(str, out[:1]))
    return ", ".join(part for part in (first, never) if part)
