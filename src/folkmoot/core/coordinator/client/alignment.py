"""Whose results fall short of what everybody learns, found round by round.

A client's alignment says how well its result agrees with the others' (`screening.py`). It is
compared with the usual one, and how much of that is asked depends on how closely the three fifths
that are nearest to each other agree; whatever two fifths of the clients send does not set the
others further apart. Where they differ by no more than a fifth, who has less than 0.85 of the usual
alignment trained less than the others. Where they differ more, or are all aligned faintly, honest
results fall as low, and for many rounds on end; and of a few clients three fifths are often close
by chance. Then only less than a quarter counts, as what nobody trained has.

What a client lacks of what is asked is added up, and what it has beyond is taken off, never below
zero. A twelfth of the usual alignment is a whole round's worth, more counts no more, and four
rounds' worth is too much. A witness that came later knows of fewer rounds and so adds up less.
"""

import numpy as np
from numpy.typing import NDArray

# Alignments are compared where their median is more than the noise of sketches (1/64).
FAINTEST = 0.05
# And closely where it is ten times that noise.
CLEAR = 10 / 64
# Of the usual alignment: asked where so many or more results agree so closely, and elsewhere.
CLOSELY, LOOSELY = 0.85, 0.25
CLOSE, FEWEST = 0.2, 7
# What a client may lack in all, in rounds, and how much of the usual alignment is one.
TOO_SHORT, A_ROUND = 4.0, 1 / 12
# The weight of a round in how closely results agreed of late.
LATELY = 0.5
Numbers = NDArray[np.float64]


class Agreement:
    """How closely the results of the rounds agree."""

    def __init__(self) -> None:
        self._apart: float | None = None

    def asked(self, aligned: Numbers) -> float:
        """How much of the usual alignment is asked in a round that has these. The round must be
        close, and the ones before as well: one may be so by chance."""
        usual = _usual(aligned)
        _, apart = _three_fifths(aligned / usual)
        before = apart if self._apart is None else self._apart
        self._apart = before + LATELY * (apart - before)
        close = usual >= CLEAR and max(apart, self._apart) <= CLOSE
        return CLOSELY if close and len(aligned) >= FEWEST else LOOSELY


def above_three_fifths(values: NDArray[np.floating]) -> float:
    """Not the median: where some trained less, everybody's cosines with them are among the lower,
    and say little of the others."""
    return float(np.sort(values)[3 * len(values) // 5])


def relative_to_usual(aligned: Numbers) -> Numbers:
    return aligned / _usual(aligned)


def _usual(aligned: Numbers) -> float:
    """Liars below the honest draw the median of all down, and are not among the closest."""
    nearest, _ = _three_fifths(aligned)
    return max(nearest, float(np.median(aligned)))


def _three_fifths(values: Numbers) -> tuple[float, float]:
    """The median of the three fifths that are closest together, and how far apart they are."""
    ordered = np.sort(values)
    many = len(ordered) - 2 * len(ordered) // 5
    apart = ordered[many - 1 :] - ordered[: len(ordered) - many + 1]
    first = int(np.argmin(apart))
    return float(np.median(ordered[first : first + many])), float(apart[first])


def add_shortfall(short: float, asked: float, relative: float) -> float:
    """What a client lacks by now, in rounds."""
    return min(max(short + min((asked - relative) / A_ROUND, 1.0), 0.0), TOO_SHORT)
