"""Outcomes, kept in a file so that a stopped benchmark continues, and the table they make.

Runs that differ in nothing but their data differ by some per cent, and so do two that begin alike,
once one of them learnt another result: the loss with liars says no more of that of the honest alone
on the same data than of that on other data. So every attack is tried with several seeds, and the
mean of its losses stands beside that of the honest clients alone, with more seeds: how much more it
is in per cent, the standard error of that and, in brackets, how many seeds of the attack there are.
"""

import math
import statistics
from collections.abc import Iterable
from pathlib import Path

import msgspec

import results
from liars_attacks import ATTACKS, Setting
from liars_play import AUDITED, ROUNDS, Outcome, play

SEEDS, ALONE = range(300, 310), range(300, 330)
"""On which nothing was tuned: of each attack, and of the honest clients alone."""
SIZES = {"1 of 4": (4, 1), "2 of 8": (8, 2), "3 of 10": (10, 3)}
Outcomes = list[Outcome]


class Record:
    """Outcomes in a file of JSON lines, so that a stopped benchmark continues. The honest clients
    alone are the attack that has no name."""

    def __init__(self, path: Path, files: tuple[Path, Path]) -> None:
        self.path, self.files = path, files

    def find(
        self, name: str, attack: str, screen: bool, setting: Setting, seed: int
    ) -> Outcome | None:
        """What was played before."""
        wanted = [name, attack, screen, [*setting], ROUNDS, AUDITED, seed]
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            known, outcome = msgspec.json.decode(line, type=tuple[list[object], Outcome])
            if known == wanted:
                return outcome
        return None

    def play(self, name: str, attack: str, screen: bool, setting: Setting, seed: int) -> None:
        if self.find(name, attack, screen, setting, seed):
            return
        n, liars = SIZES[name]
        outcome = play(self.files, n - liars, liars if attack else 0, attack, screen, setting, seed)
        key = [name, attack, screen, setting, ROUNDS, AUDITED, seed]
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode((key, outcome)) + b"\n")
        print(
            f"{name}, {attack or 'honest alone'}, {setting}, screened {screen}, seed {seed}: "
            f"{outcome}",
            flush=True,
        )

    def play_all(self, sizes: Iterable[str], attacks: Iterable[str], seeds: int) -> None:
        """Seed after seed, so that a benchmark that is stopped has some of every row."""
        settings = {ATTACKS[attack] for attack in attacks}
        for seed in ALONE:
            for name in sizes:
                for setting in sorted(settings):
                    self.play(name, "", True, setting, seed)
                for attack in attacks if seed in SEEDS[:seeds] else ():
                    for screen in (True, False) if name == "1 of 4" else (True,):
                        self.play(name, attack, screen, ATTACKS[attack], seed)

    def played(self, name: str, attack: str, screen: bool, setting: Setting) -> Outcomes:
        """The outcome of every seed so far."""
        found = (self.find(name, attack, screen, setting, seed) for seed in ALONE)
        return [outcome for outcome in found if outcome]

    def compared(self, name: str, attack: str, screen: bool) -> str:
        """Per cent above the honest clients alone."""
        setting = ATTACKS[attack]
        return above(
            [outcome.loss for outcome in self.played(name, attack, screen, setting)],
            [outcome.loss for outcome in self.played(name, "", True, setting)],
        )


def figures(record: Record) -> dict[str, object]:
    rows: dict[str, dict[str, object]] = {}
    innocent = 0
    for attack, setting in ATTACKS.items():
        row = rows.setdefault(attack, {})
        row["1 of 4, neither, %"] = record.compared("1 of 4", attack, False)
        for name in SIZES:
            row[f"{name}, %"] = record.compared(name, attack, True)
            played = record.played(name, attack, True, setting)
            row[f"{name}, out in round"] = rounds_of(played)
            innocent += sum(made.innocent for made in played)
    return {"rounds": ROUNDS, "attacks": rows, "honest": honest(record), "innocent": innocent}


def honest(record: Record) -> dict[str, dict[str, object]]:
    """The honest clients alone: their losses, and how much those differ by chance, in per cent."""
    rows: dict[str, dict[str, object]] = {}
    for name in SIZES:
        losses = [outcome.loss for outcome in record.played(name, "", True, Setting())]
        if len(losses) < 2:
            continue
        rows[name] = {
            "loss": results.significant(statistics.fmean(losses)),
            "seeds": len(losses),
            "standard deviation, %": _percent(statistics.stdev(losses), losses),
        }
    return rows


def above(losses: list[float], base: list[float]) -> str:
    """How far the mean of `losses` is above that of `base`, in per cent."""
    if not losses or not base:
        return "–"
    beyond = 100 * (statistics.fmean(losses) / statistics.fmean(base) - 1)
    if min(len(losses), len(base)) < 2:
        return f"{beyond:.1f} ({len(losses)})"
    error = math.sqrt(sum(statistics.variance(each) / len(each) for each in (losses, base)))
    return f"{beyond:.1f} ± {_percent(error, base)} ({len(losses)})"


def _percent(part: float, losses: list[float]) -> float:
    return round(100 * part / statistics.fmean(losses), 1)


def rounds_of(outcomes: Outcomes) -> str:
    """When liars were ejected, and how many of them never were."""
    when = [one for outcome in outcomes for one in outcome.ejected]
    out = sorted(one for one in when if one is not None)
    never = f"{len(when) - len(out)} of {len(when)} never" if len(out) < len(when) else ""
    first = f"{out[0]}–{out[-1]}" if out and out[0] < out[-1] else "".join(map(str, out[:1]))
    return ", ".join(part for part in (first, never) if part) or "–"
