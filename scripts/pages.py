"""Fill what the pages show from where it is known: diagrams from the machines' tables, figures
from benchmarks/results.

    python scripts/pages.py           rewrite the pages
    python scripts/pages.py --check   fail when they have drifted

In a page, between a marker and `<!-- end -->`, stands what is filled in:

    <!-- diagram: run -->                   a machine's diagram
    <!-- figure: digits.federated -->       one figure of results/digits.json
    <!-- figures: learning.methods -->      a table of them
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from folkmoot.core.coordinator import machine as run
from folkmoot.core.coordinator.client import machine as client
from folkmoot.core.federation import machine as federation
from folkmoot.core.federation import participant
from folkmoot.core.iteration import machine as iteration
from folkmoot.core.job import machine as job
from folkmoot.core.table import mermaid

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
DIAGRAMS = {
    "run": mermaid(run.TABLE, "WaitingForMembers", ["Finished"]),
    "client": mermaid(client.TABLE, "Away"),
    "federation": mermaid(federation.TABLE, "STANDBY", ["FINISHED"]),
    "participant": mermaid(participant.TABLE, "WAITING", ["DONE"]),
    "iteration": mermaid(iteration.TABLE, "Restarting", ["Stopped"]),
    "job": mermaid(job.TABLE, "INIT", ["STOPPED"]),
}
RESULTS = {
    path.stem: json.loads(path.read_text()) for path in ROOT.glob("benchmarks/results/*.json")
}
_PLACE = re.compile(r"(<!-- (diagram|figures?): (.+?) -->).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The page as it should be."""
    return _PLACE.sub(lambda place: f"{place[1]}{content(place[2], place[3])}{place[4]}", text)


def content(kind: str, name: str) -> str:
    if kind == "diagram":
        return f"\n{DIAGRAMS[name]}\n"
    if kind == "figure":
        return shown(figure(name))
    return f"\n{table(figure(name))}\n"


def figure(name: str) -> Any:
    """`learning.methods.SparseLoCo.loss`: a file, and the way to a figure in it.

    A name in it may have dots of its own, as `9.4 M` does.
    """
    file, _, rest = name.partition(".")
    found = RESULTS[file]["figures"]
    while rest:
        key = next((k for k in found if rest == k or rest.startswith(f"{k}.")), None)
        if key is None:
            raise KeyError(f"benchmarks/results/{file}.json has no figure {name}")
        found, rest = found[key], rest.removeprefix(key).removeprefix(".")
    return found


def shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Rows by name, with the columns of the first; another may lack some."""
    columns = list(next(iter(rows.values())))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [
        [name, *(shown(row.get(column, "–")) for column in columns)] for name, row in rows.items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    drifted = []
    for path in PAGES:
        text = path.read_text()
        if filled(text) != text:
            drifted.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(filled(text))
    if drifted and "--check" in sys.argv:
        sys.exit(f"{', '.join(drifted)} have drifted: run `make pages`")


if __name__ == "__main__":
    main()
