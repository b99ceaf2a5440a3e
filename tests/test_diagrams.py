"""What the pages show is what the machines do and the benchmarks measured; their links lead on."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("pages", ROOT / "scripts" / "pages.py")
pages = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pages)

EVERY_PAGE = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def all_pages() -> str:
    return "".join(path.read_text() for path in pages.PAGES)


@pytest.mark.parametrize("page", pages.PAGES, ids=named)
def test_a_page_has_not_drifted_from_what_fills_it(page: Path) -> None:
    text = page.read_text()
    assert pages.filled(text) == text, "run `make pages`"


@pytest.mark.parametrize("page", pages.PAGES, ids=named)
def test_what_is_changed_by_hand_is_changed_back(page: Path) -> None:
    text = page.read_text()
    changed, places = pages._PLACE.subn(r"\g<1>1,234\g<4>", text)
    assert (pages.filled(changed), changed == text) == (text, places == 0)


def test_every_marker_is_closed() -> None:
    text = all_pages()
    assert len(re.findall(r"<!-- (?:diagram|figures?): ", text)) == text.count("<!-- end -->")


def test_every_diagram_is_shown() -> None:
    text = all_pages()
    assert [name for name in pages.DIAGRAMS if f"<!-- diagram: {name} -->" not in text] == []


def test_every_result_says_where_it_comes_from() -> None:
    for result in pages.RESULTS.values():
        assert set(result) - {"note"} == {"source", "date", "commit", "machine", "figures"}
        assert set(result["machine"]) == {"cores", "cpu", "python", "torch"}


def test_a_figure_that_nobody_measured_is_an_error() -> None:
    with pytest.raises(KeyError, match="no figure"):
        pages.filled("<!-- figure: digits.guessed -->1<!-- end -->")


@pytest.mark.parametrize("page", EVERY_PAGE, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{named(page)}: there is no {link}"
        if anchor:
            assert anchor in anchors(target), f"{named(page)}: there is no heading for {link}"


def anchors(page: Path) -> Iterator[str]:
    """The headings of a page as links spell them."""
    for heading in re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text()), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_decision_is_in_the_index_under_a_number_of_its_own() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    decisions = [path for path in sorted(folder.glob("*.md")) if path.name != "README.md"]
    numbers = [path.name[:3] for path in decisions]
    assert len(set(numbers)) == len(numbers)
    for path in decisions:
        heading = path.read_text().partition("\n")[0]
        assert re.fullmatch(rf"# {path.name[:3]} [^—–-].*", heading), f"{named(path)}: {heading}"
        title = heading.removeprefix("# ")
        assert f"[{title}]({path.name})" in index, f"{named(path)} is not in the index"


def test_every_file_that_the_architecture_and_the_decisions_name_is_there() -> None:
    files = [f"/{named(path)}" for path in ROOT.glob("[bst]*/**/*.py")]  # benchmarks, src, tests
    naming = [ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/decisions/*.md")]
    names = [name for page in naming for name in re.findall(r"`([\w/]+\.py)`", page.read_text())]
    assert names
    assert [n for n in names if not any(file.endswith(f"/{n}") for file in files)] == []
