"""The program is built from its source to the same bytes everywhere, and nothing else is linked."""

import os
import shutil
import struct
from pathlib import Path

import pytest

from authority.solana.differential import first_difference
from folkmoot.authority.solana import build as building
from folkmoot.authority.solana.build import build, clang, shipped
from folkmoot.authority.solana.link import EM_BPF, ET_REL, LinkError, link, murmur3_32


def test_the_shipped_program_is_built_from_its_source() -> None:
    assert build() == shipped()


def test_a_changed_program_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "coordinator.so"
    changed.write_bytes(shipped()[:-1] + b"x")
    monkeypatch.setattr(building, "PROGRAM", changed)
    with pytest.raises(ValueError, match="is not the program whose hash"):
        shipped()


@pytest.mark.skipif(shutil.which("clang-19") is None, reason="needs Debian's clang-19")
def test_a_program_built_by_clang_follows_the_core_too() -> None:
    other = build(clang())
    assert other != shipped()
    assert first_difference(other, range(int(os.environ.get("FOLKMOOT_SEQUENCES", "20")))) is None


def test_the_hash_of_a_system_call_is_the_loaders() -> None:
    assert murmur3_32(b"sol_log_") == 544561597


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("-mcpu=v3",), "32-bit arithmetic"),
        (("-DWITH_VARIABLE",), "variables that can change"),
        (("-DWITH_CALL",), "calls elsewhere, which is neither here nor a system call"),
        (("-DWITHOUT_ENTRY",), "there is no function entrypoint"),
    ],
)
def test_what_the_machine_would_run_differently_is_not_linked(
    flags: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.c").write_text(
        """
        #ifdef WITH_VARIABLE
        unsigned long long counted = 1;
        #else
        static const unsigned long long counted = 1;
        #endif
        #ifdef WITH_CALL
        extern unsigned long long elsewhere(unsigned n);
        #else
        static unsigned long long elsewhere(unsigned n) { return n; }
        #endif
        #ifdef WITHOUT_ENTRY
        #define entrypoint another
        #endif
        unsigned long long entrypoint(unsigned *in) {
        #ifdef WITH_VARIABLE
            counted += *in;
        #endif
            return elsewhere(in[0] * in[1] + in[2]) + counted;
        }
        """
    )
    monkeypatch.setattr(building, "FOLDER", tmp_path)
    usual = tuple(
        flag for flag in building.FLAGS if not flag.startswith("-mcpu") or "v3" not in flags[0]
    )
    monkeypatch.setattr(building, "FLAGS", (*usual, "-Wno-unused-function", *flags))
    with pytest.raises(LinkError, match=why):
        build()


def test_what_is_no_object_is_not_linked() -> None:
    with pytest.raises(LinkError, match="not a relocatable BPF object"):
        link(bytes(64))
    other = b"\x7fELF\x02\x01" + bytes(10) + struct.pack("<HH", ET_REL, EM_BPF + 1) + bytes(44)
    with pytest.raises(LinkError, match="not a relocatable BPF object"):
        link(other)
