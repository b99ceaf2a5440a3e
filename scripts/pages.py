"""Draw the diagrams in README.md and ARCHITECTURE.md from the machines' tables.

python scripts/pages.py           rewrite them
python scripts/pages.py --check   fail when they have drifted
"""

import re
import sys
from pathlib import Path

from folkmoot.core.coordinator import machine as run
from folkmoot.core.federation import machine as federation
from folkmoot.core.federation import participant
from folkmoot.core.table import mermaid

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "ARCHITECTURE.md")
DIAGRAMS = {
    "run": mermaid(run.TABLE, "WaitingForMembers", ["Finished"]),
    "federation": mermaid(federation.TABLE, "STANDBY", ["FINISHED"]),
    "participant": mermaid(participant.TABLE, "WAITING", ["DONE"]),
}
_PLACE = re.compile(r"(<!-- diagram: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def drawn(text: str) -> str:
    """The page with every diagram as its table has it now."""
    return _PLACE.sub(lambda place: f"{place[1]}{DIAGRAMS[place[2]]}\n{place[3]}", text)


def main() -> None:
    drifted = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        if drawn(text) != text:
            drifted.append(page)
            if "--check" not in sys.argv:
                path.write_text(drawn(text))
    if drifted and "--check" in sys.argv:
        sys.exit(f"diagrams in {', '.join(drifted)} have drifted: run `make pages`")


if __name__ == "__main__":
    main()
