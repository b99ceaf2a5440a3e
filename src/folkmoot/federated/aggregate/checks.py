"""What every update must pass before it may be counted.

An update is read once, in blocks. The first thing wrong with it is the reason it is quarantined
for, as a sentence for its owner. Nothing is kept between updates, so the same bytes always get the
same answer.
"""

from __future__ import annotations

import numpy as np

from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.model_file import layout as model_layout
from folkmoot.federated.model_file.layout import Array, BadModel, Layout

#: Products of a sample count and a float32 weight are exact in float64 up to here.
MAX_SAMPLES = 1 << 29
#: Server optimizers remember an array under its name and a prefix; this leaves room for it.
MAX_NAME = model_layout.MAX_NAME - 12


def bad_update(update: ModelUpdate, layout: Layout | None, *, finite: bool = False) -> str:
    """Why an update must not be counted, or nothing; the very first ones have no `layout` to fit.

    It is read through `update.source.blocks()`, once and to the end, unless it is bad, or known to
    be `finite`.
    """
    return (
        bad_samples(update.samples, initial=update.base is None)
        or bad_layout(update.source.layout, layout)
        or ("" if finite else bad_values(update))
    )


def bad_sum(update: ModelUpdate, layout: Layout) -> str:
    """Why an aggregator's sum must not be counted, or nothing; `layout` is that of such a sum."""
    if update.samples < update.participants:
        return (
            f"number_samples is {update.samples} for {update.participants} participants: each "
            "has one at the least"
        )
    return bad_layout(update.source.layout, layout) or bad_values(update)


def bad_samples(samples: int, *, initial: bool) -> str:
    lowest = 0 if initial else 1
    if lowest <= samples <= MAX_SAMPLES:
        return ""
    return f"number_samples is {samples}; expected between {lowest} and {MAX_SAMPLES}"


def bad_layout(found: Layout, expected: Layout | None) -> str:
    """The first difference to the global model, if there is one."""
    if expected is None:
        longest = max(found, key=len)
        if len(longest) <= MAX_NAME:
            return ""
        return f"array name {longest[:40]!r}… has {len(longest)} characters; at most {MAX_NAME}"
    if missing := [name for name in expected if name not in found]:
        return f"array {missing[0]!r} of the global model is missing ({len(missing)} in all)"
    if extra := [name for name in found if name not in expected]:
        return f"array {extra[0]!r} is not in the global model ({len(extra)} in all)"
    for name, want in expected.items():
        have = found[name]
        if have.dtype != want.dtype:
            return f"array {name!r} has dtype {have.dtype}; the global model's is {want.dtype}"
        if have.shape != want.shape:
            return f"array {name!r} has shape {have.shape}; the global model's is {want.shape}"
    return ""


def bad_values(update: ModelUpdate) -> str:
    """The first value that is not a number or not finite, or what kept us from reading."""
    try:
        for name, start, values in update.source.blocks():
            if (offset := first_not_finite(values)) is not None:
                where = f"array {name!r} at flat position {start + offset}"
                return f"{where} is {values[offset]}; every weight must be finite"
    except BadModel as error:
        return f"the update cannot be read: {error}"
    return ""


def first_not_finite(values: Array) -> int | None:
    if values.dtype.kind != "f":
        return None
    finite = np.isfinite(values)
    return None if finite.all() else int(np.argmin(finite))
