"""Whether a job that was put together in Python can be: everything that is wrong, at once."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from folkmoot.core.config import Broken, all_broken
from folkmoot.core.job import JobSpec


class BadJob(ValueError):
    """Everything wrong with a job."""

    def __init__(self, name: str, problems: Sequence[Broken]) -> None:
        self.problems = tuple(problems)
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        lines = "\n".join(f"  {field}: {reason}" for field, reason in problems)
        super().__init__(f"the job {name} has {count}:\n{lines}")


def checked(spec: JobSpec, more: Iterable[Broken] = ()) -> JobSpec:
    """The same spec, if every type and every rule of it holds; else `BadJob`."""
    found = list(more)
    try:
        spec = msgspec.convert(msgspec.to_builtins(spec), JobSpec)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadJob(str(spec.name), [*found, _of_type(error)]) from None
    found += all_broken(spec)
    if found:
        raise BadJob(spec.name, found)
    return spec


def _of_type(error: Exception) -> Broken:
    """`Expected int, got str - at $.roles[...].total` as the house says it."""
    reason, _, path = str(error).partition(" - at `")
    field = re.sub(r"^\$\.?|`$", "", path) or "(job)"
    return Broken(field, reason.replace("`", "").replace("Expected", "expected"))
