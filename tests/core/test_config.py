"""A bad file lists all its problems, each with its key, its line, why, and what was meant."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.config import Broken, ConfigError, Problem, all_broken, decode
from folkmoot.core.toml_lines import Path, key_lines


class Small(msgspec.Struct, frozen=True, tag="small", tag_field="size"):
    grams: int


class Large(msgspec.Struct, frozen=True, tag="large", tag_field="size"):
    tons: int = 1


class Source(msgspec.Struct, frozen=True):
    name: str
    weight: float = 1.0
    load: Small | Large = Large()

    def rules(self) -> Iterator[Broken]:
        if self.weight < 0:
            yield Broken("weight", "must be 0 or more")


class Box(msgspec.Struct, frozen=True, kw_only=True):
    width: int
    height: int = 2
    note: str = ""

    def rules(self) -> Iterator[Broken]:
        if self.width < 1:
            yield Broken("width", "must be 1 or more")
        if self.height < self.width:
            yield Broken("height", f"must be width ({self.width}) or more")


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    box: Box
    sources: tuple[Source, ...] = ()
    spare: Box | None = None
    names: list[str] = []

    def rules(self) -> Iterator[Broken]:
        if not self.title:
            yield Broken("title", "must not be empty")


def problems(text: str, into: Any = Whole) -> list[tuple[str, int, str, str | None]]:
    with pytest.raises(ConfigError) as caught:
        decode(text, into, "whole.toml")
    return [tuple(problem) for problem in caught.value.problems]


def test_a_good_file_is_a_struct() -> None:
    text = """
title = "t"
names = ["a", "b"]
[box]
width = 1
[[sources]]
name = "x"
load = { size = "small", grams = 3 }
[[sources]]
name = "y"
weight = 2
"""
    sources = (Source("x", 1.0, Small(3)), Source("y", 2.0))
    expected = Whole(title="t", box=Box(width=1), names=["a", "b"], sources=sources)
    assert decode(text, Whole) == expected


def test_all_problems_are_listed_in_the_order_of_their_lines() -> None:
    text = """
titel = "t"
note = "in the wrong table"

[box]
width = 0
height = "tall"   # the rule about height and width says nothing then
colour = 1
"""
    assert problems(text) == [
        ("title", 1, "required, and missing", None),
        ("titel", 2, "unknown key", "title"),
        ("note", 3, "unknown key", "box.note"),
        ("box.width", 6, "must be 1 or more", None),
        ("box.height", 7, "expected int, got 'tall'", None),
        ("box.colour", 8, "unknown key", None),
    ]


def test_the_message_is_a_list_a_user_can_work_through() -> None:
    with pytest.raises(ConfigError) as caught:
        decode('title = ""\n[box]\nwidht = 3\n', Whole, "whole.toml")
    assert str(caught.value) == (
        "whole.toml has 3 problems:\n"
        "  line 1: title: must not be empty\n"
        "  line 2: box.width: required, and missing\n"
        "  line 3: box.widht: unknown key (did you mean 'width'?)"
    )


def test_a_bad_required_value_does_not_hide_the_rules_of_others() -> None:
    text = 'title = ""\n[box]\nwidth = "w"\nheight = 0\n[spare]\nwidth = -1\n'
    assert [(key, line) for key, line, *_ in problems(text)] == [
        ("title", 1),
        ("box.width", 3),
        ("spare.width", 6),
    ]


def test_arrays_of_tables_are_numbered() -> None:
    text = """title = "t"
box.width = 1
[[sources]]
name = "x"
[[sources]]
weight = -1.0
wieght = 2
[sources.load]
size = "small"
[[sources]]
name = "z"
load = { size = "huge" }
"""
    assert problems(text) == [
        ("sources[1].name", 5, "required, and missing", None),
        ("sources[1].weight", 6, "must be 0 or more", None),
        ("sources[1].wieght", 7, "unknown key", "weight"),
        ("sources[1].load.grams", 8, "required, and missing", None),
        (
            "sources[2].load.size",
            12,
            "unknown value 'huge'; expected one of large, small",
            None,
        ),
    ]


def test_inline_tables_and_arrays_over_several_lines_have_their_own_lines() -> None:
    text = '''title = """
[box]
width = "this is text"
"""
names = [
  "a = 1",  # ]
  "[box]",
]
sources = [
  { name = "x", load = { size = "smal", grams = 1 } },
  { name = 'y', weight = "heavy" },
]
box = { width = 5, height = 4 }
'''
    assert problems(text) == [
        ("sources[0].load.size", 10, "unknown value 'smal'; expected one of large, small", "small"),
        ("sources[1].weight", 11, "expected float, got 'heavy'", None),
        ("box.height", 13, "must be width (5) or more", None),
    ]


def test_a_tag_that_is_missing_is_named() -> None:
    text = 'title = "t"\nbox = { width = 1 }\n[[sources]]\nname = "x"\n[sources.load]\ngrams = 1\n'
    expected = "required, and missing; expected one of large, small"
    assert problems(text) == [("sources[0].load.size", 5, expected, None)]


def test_a_value_in_place_of_a_table_is_a_problem() -> None:
    found = problems('title = 3\nbox = "square"\nsources = 1\n')
    assert [(key, line) for key, line, *_ in found] == [("title", 1), ("box", 2), ("sources", 3)]


@pytest.mark.parametrize(
    ("text", "line"),
    [("title = \n", 1), ('title = "t"\n[box\n', 2), ("a = 1\nb = 2\na = 3\n", 3), ('x = "', 1)],
)
def test_a_syntax_error_has_its_line(text: str, line: int) -> None:
    [(key, found, reason, _)] = problems(text)
    assert (key, found) == ("(syntax)", line)
    assert reason.startswith("not TOML: ")


def test_numbers_that_are_not_the_same_everywhere_are_refused() -> None:
    text = f"""title = "t"
box = {{ width = {2**64}, height = {2**65} }}
sources = [{{ name = "x", weight = nan }}]
"""
    assert [(key, reason) for key, _, reason, _ in problems(text)] == [
        ("box.height", "must fit into 64 bits"),
        ("box.width", "must fit into 64 bits"),
        ("sources[0].weight", "must be a finite number"),
    ]
    made = Whole(title="t", box=Box(width=1), sources=(Source("x", float("inf")),))
    assert list(all_broken(made)) == [Broken("sources.weight", "must be a finite number")]


def test_a_problem_reads_as_a_sentence() -> None:
    assert str(Problem("a.b", 3, "unknown key", "a.c")) == (
        "line 3: a.b: unknown key (did you mean 'a.c'?)"
    )


# Tables under names of the user's own.


class Limits(msgspec.Struct, frozen=True):
    memory: int = 1
    per_node: dict[str, Box] = {}


class Role(msgspec.Struct, frozen=True):
    count: int
    limits: Limits = Limits()
    env: dict[str, str] = {}

    def rules(self) -> Iterator[Broken]:
        if self.count < 1:
            yield Broken("count", "must be 1 or more")


class Job(msgspec.Struct, frozen=True):
    roles: dict[str, Role]
    loads: dict[str, Small | Large] | None = None
    stages: tuple[dict[str, Role], ...] = ()


def test_named_tables_are_a_dict_of_structs() -> None:
    text = """
[roles.rollout]
count = 2
env = { A = "1" }
[roles."a.b".limits.per_node.big]
width = 1
[roles."a.b"]
count = 1
[loads]
left = { size = "small", grams = 3 }
[[stages]]
first = { count = 4 }
"""
    dotted = Role(1, Limits(per_node={"big": Box(width=1)}))
    assert decode(text, Job) == Job(
        {"rollout": Role(2, env={"A": "1"}), "a.b": dotted},
        {"left": Small(3)},
        ({"first": Role(4)},),
    )


def test_a_problem_in_a_named_table_is_told_by_its_name_and_line() -> None:
    text = """
count = 3
[roles.rollout]
count = 0
cuont = 1
[roles.trainer]
env = { A = 1 }
[roles.critic]
count = "many"
[roles.critic.limits]
memroy = 2
per_node.small.width = 5
per_node.small.hieght = 5
[roles]
actor = 3
[loads.left]
size = "smal"
[[stages]]
first = { count = -1 }
"""
    assert problems(text, Job) == [
        ("count", 2, "unknown key", "roles.<name>.count"),
        ("roles.rollout.count", 4, "must be 1 or more", None),
        ("roles.rollout.cuont", 5, "unknown key", "count"),
        ("roles.trainer.count", 6, "required, and missing", None),
        ("roles.trainer.env.A", 7, "expected str, got 1", None),
        ("roles.critic.count", 9, "expected int, got 'many'", None),
        ("roles.critic.limits.memroy", 11, "unknown key", "memory"),
        ("roles.critic.limits.per_node.small.height", 12, "must be width (5) or more", None),
        ("roles.critic.limits.per_node.small.hieght", 13, "unknown key", "height"),
        ("roles.actor", 15, "expected object, got 3", None),
        ("loads.left.size", 17, "unknown value 'smal'; expected one of large, small", "small"),
        ("stages[0].first.count", 19, "must be 1 or more", None),
    ]


def test_a_name_that_needs_quotes_is_told_with_them() -> None:
    names = ('roles."a.b"', 'roles."0"', """"roles".'say "hi"'""", 'roles."<name>"')
    text = "".join(f"[{name}]\ncount = 0\n" for name in names)
    assert [(key, line) for key, line, *_ in problems(text, Job)] == [
        ('roles."a.b".count', 2),
        ("roles.0.count", 4),
        ('roles."say \\"hi\\"".count', 6),
        ('roles."<name>".count', 8),
    ]


def test_the_rules_of_named_structs_are_told_without_a_file() -> None:
    made = Job({"a.b": Role(0, Limits(per_node={"x": Box(width=0)}))})
    assert list(all_broken(made)) == [
        Broken('roles."a.b".count', "must be 1 or more"),
        Broken('roles."a.b".limits.per_node.x.width', "must be 1 or more"),
    ]


ROLE_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)


@given(st.dictionaries(ROLE_NAMES, st.integers(1, 9), min_size=1), st.data())
def test_any_name_is_kept_and_a_problem_under_it_leads_back_to_it(
    counts: dict[str, int], data: st.DataObject
) -> None:
    def document() -> str:
        return "".join(
            f"[roles.{json.dumps(n, ensure_ascii=False)}]\ncount = {c}\n" for n, c in counts.items()
        )

    assert decode(document(), Job) == Job({name: Role(count) for name, count in counts.items()})
    broken = data.draw(st.sampled_from(list(counts)))
    counts[broken] = 0
    [(key, line, reason, _)] = problems(document(), Job)
    assert reason == "must be 1 or more"
    assert line == 2 * list(counts).index(broken) + 2
    assert tomllib.loads(f"{key} = 0") == {"roles": {broken: {"count": 0}}}


# Any document: where the scanner says a key is, that key is written.

NAMES = st.sampled_from(["a", "b-c", "d_1", '"quo.ted"', "'li teral'", '"[x]"', "0", '"\\u0061b"'])
SCALARS = st.sampled_from(
    ["1", "-2.5", "true", "1979-05-27T07:32:00Z", '"s # ]"', "'l = {'", '"""m\n[x]\ny = 1\n"""',
     "'''\nz = 2 '' \n'''", '"\\" = "', '""', '"""a\\""""']
)  # fmt: skip


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(
        lambda parts: "[\n" + "".join(f"  {p}, # ,]\n" for p in parts) + "]"
    )


def inlines(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.dictionaries(NAMES, inner, max_size=3)
    return pairs.map(lambda d: "{ " + ", ".join(f"{k} = {v}" for k, v in d.items()) + " }")


VALUES = st.recursive(SCALARS, lambda inner: arrays(inner) | inlines(inner), max_leaves=6)


def leaves(path: Path, value: Any) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves((*path, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves((*path, number), inner)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "[t]", "[[r]]", "[r.s]", "[t.u]"]), NAMES, VALUES),
        max_size=6,
    )
)
def test_every_key_of_any_document_is_found_on_the_line_that_writes_it(
    rows: list[tuple[str, str, str]],
) -> None:
    text = ""
    written: list[tuple[str, int]] = []
    for header, key, value in rows:
        head = f"{header}\n" if header else "# nothing\n"
        candidate = text + head + f"{key} = {value}\n"
        try:
            tomllib.loads(candidate)
        except tomllib.TOMLDecodeError:
            continue
        written.append((next(iter(tomllib.loads(f"{key} = 0"))), (text + head).count("\n") + 1))
        text = candidate
    lines = key_lines(text)
    assert set(lines) == set(leaves((), tomllib.loads(text)))
    for key, line in written:
        assert line in [at for path, at in lines.items() if path[-1] == key]
