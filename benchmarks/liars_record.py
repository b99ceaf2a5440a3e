"""Outcomes, kept in a file so that a stopped benchmark continues, and the table they make.

Runs that differ in nothing but their data differ by some per cent, and so do two that begin alike,
once one of them learnt another result. So every attack is tried with several seeds, each beside the
honest clients alone with the same seed: the mean of those differences, their standard deviation
and, in brackets, how many there are so far.
"""

import statistics
from collections.abc import Iterable
from pathlib import Path

import msgspec

import results
from liars_attacks import ATTACKS, Setting
from liars_play import AUDITED, ROUNDS, Outcome, play

SEEDS = range(300, 310)
"""On which nothing was tuned."""
SIZES = {"1 of 4": (4, 1), "2 of 8": (8, 2), "3 of 10": (10, 3)}
Pairs = list[tuple[float, Outcome]]


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
        for seed in SEEDS[:seeds]:
            for name in sizes:
                for attack in attacks:
                    setting = ATTACKS[attack]
                    self.play(name, "", True, setting, seed)
                    for screen in (True, False) if name == "1 of 4" else (True,):
                        self.play(name, attack, screen, setting, seed)

    def compared(self, name: str, attack: str, screen: bool) -> Pairs:
        """Per cent above the honest clients alone, and the outcome, of every seed so far."""
        pairs: Pairs = []
        for seed in SEEDS:
            base = self.find(name, "", True, ATTACKS[attack], seed)
            made = self.find(name, attack, screen, ATTACKS[attack], seed)
            if base and made:
                pairs.append((100 * (made.loss / base.loss - 1), made))
        return pairs


def figures(record: Record) -> dict[str, object]:
    rows: dict[str, dict[str, object]] = {}
    innocent = 0
    for attack in ATTACKS:
        row = rows.setdefault(attack, {})
        row["1 of 4, neither, %"] = spread(record.compared("1 of 4", attack, False))
        for name in SIZES:
            pairs = record.compared(name, attack, True)
            row[f"{name}, %"] = spread(pairs)
            row[f"{name}, out in round"] = rounds_of([made for _, made in pairs])
            innocent += sum(made.innocent for _, made in pairs)
    return {"rounds": ROUNDS, "attacks": rows, "honest": honest(record), "innocent": innocent}


def honest(record: Record) -> dict[str, dict[str, object]]:
    """The honest clients alone: their losses, and how much those differ by chance, in per cent."""
    rows: dict[str, dict[str, object]] = {}
    for name in SIZES:
        found = (record.find(name, "", True, Setting(), seed) for seed in SEEDS)
        losses = [outcome.loss for outcome in found if outcome]
        if not losses:
            continue
        rows[name] = {
            "loss": results.significant(statistics.fmean(losses)),
            "seeds": len(losses),
            "largest above smallest, %": round(100 * (max(losses) / min(losses) - 1), 1),
        }
    return rows


def spread(pairs: Pairs) -> str:
    values = [above for above, _ in pairs]
    if not values:
        return "–"
    apart = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{apart} ({len(values)})"


def rounds_of(outcomes: list[Outcome]) -> str:
    """When liars were ejected, and how many of them never were."""
    when = [one for outcome in outcomes for one in outcome.ejected]
    out = sorted(one for one in when if one is not None)
    never = f"{len(when) - len(out)} of {len(when)} never" if len(out) < len(when) else ""
    first = f"{out[0]}–{out[-1]}" if out and out[0] < out[-1] else "".join(map(str, out[:1]))
    return ", ".join(part for part in (first, never) if part) or "–"
