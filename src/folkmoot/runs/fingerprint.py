"""The fingerprint of a run's data: put into the run by its owner, checked by who joins.

Whoever serves, creates or updates a run on a machine that has the data need not think of it: it is
filled in. Where the data is not, the run goes without, or with what the file says.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from folkmoot.client.served_data import SCHEME
from folkmoot.core.coordinator import Run

if TYPE_CHECKING:
    from folkmoot.learning.data import OpenUrl


class WrongData(ValueError):
    """The data here is not the run's; the message says which, and what to do."""


def fingerprinted(run: Run, served: Path | None = None, before: Run | None = None) -> Run:
    """The run with the fingerprint of its data, if the data is here.

    `served` is the folder from which a server hands out `run:NAME`. Where it cannot be read, what
    was known `before` of the same data stays.
    """
    if run.model.fingerprint or run.model.data is None:
        return run
    found = _found(run, served)
    if not found and before is not None and _same_data(run, before):
        found = before.model.fingerprint
    return replace(run, model=replace(run.model, fingerprint=found))


def check_data(run: Run, local: Run, open_url: "OpenUrl") -> None:
    """Raise `WrongData` unless what `local` names, on this machine, is the data of the run."""
    from folkmoot.learning.data.fingerprint import differing, fingerprints

    wanted = run.model.fingerprint
    if not wanted:
        return
    found = fingerprints(local.model, open_url)
    if wrong := differing(wanted, found):
        raise WrongData(
            f"what lies here is not what run '{run.run_id}' trains on: other {_names(wrong)}"
            f" ({', '.join(_files(local))}). The run's is {wanted}; here it is"
            f" {' '.join(f'{name}:{value}' for name, value in found.items())}. Get the same files"
            " from the run's owner, or say with --map where they are"
        )


def _names(wrong: list[str]) -> str:
    return " and ".join(name.replace("_", "-") for name in wrong)


def _files(run: Run) -> list[str]:
    data = run.model.data
    named = getattr(data, "paths", None) or getattr(data, "urls", None) or ("a mixture",)
    return list(named[:3])


def _same_data(run: Run, before: Run) -> bool:
    def of(run: Run) -> tuple[object, ...]:
        return run.model.data, run.model.held_out, run.model.tokenizer

    return of(run) == of(before)


def _found(run: Run, served: Path | None) -> str:
    """The fingerprint, or "" where the data, or what reads it, is not installed."""
    try:
        from folkmoot.learning.data.fingerprint import fingerprints, written
        from folkmoot.learning.data.source import DataError, FileSource
    except ImportError:
        return ""

    def open_url(url: str) -> FileSource:
        if served is None or not url.startswith(SCHEME):
            raise DataError(f"{url}: it is not read here")
        return FileSource(served / Path(url.removeprefix(SCHEME)).name)

    try:
        return written(fingerprints(run.model, open_url))
    except (DataError, OSError):
        return ""
