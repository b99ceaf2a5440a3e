"""Make the program: the header, the compiler, our linker. The same bytes on every machine.

    make program                     # python -m folkmoot.authority.solana.build

writes `program/coordinator.so` and its hash. zig is what the package is built with (it comes with
pip); clang works as well and gives another file.
"""

import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from folkmoot.authority.solana.header import header
from folkmoot.authority.solana.link import link

FOLDER = Path(__file__).parent / "program"
PROGRAM = FOLDER / "coordinator.so"
HASH = FOLDER / "coordinator.so.sha256"
ZIG = (sys.executable, "-m", "ziglang", "cc", "-target", "bpfel-freestanding")
FLAGS = (
    "-mcpu=v2", "-O2", "-std=c11", "-ffreestanding", "-fno-builtin", "-fno-jump-tables",
    "-fno-ident", "-mllvm", "-bpf-stack-size=4096", "-g0", "-Wall", "-Wextra", "-Werror",
    "-fno-sanitize=all",
)  # fmt: skip


def clang(command: str = "clang-19") -> tuple[str, ...]:
    return (command, "-target", "bpf")


def build(compiler: Sequence[str] = ZIG, mutant: int = 0) -> bytes:
    """The program; `mutant` breaks one of its rules on purpose, for tests."""
    with TemporaryDirectory() as folder:
        made = Path(folder)
        (made / "layout.h").write_text(header())
        for source in FOLDER.glob("*.[ch]"):
            (made / source.name).write_bytes(source.read_bytes())
        # Relative names and one folder: no path of this machine gets into the file.
        command = [*compiler, *FLAGS, f"-DMUTANT={mutant}", "-c", "program.c", "-o", "program.o"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
        return link((made / "program.o").read_bytes())


def shipped() -> bytes:
    """The program that comes with the package, checked against its hash."""
    program = PROGRAM.read_bytes()
    if sha256(program).hexdigest() != HASH.read_text().strip():
        raise ValueError(f"{PROGRAM} is not the program whose hash is in {HASH.name}: reinstall")
    return program


def main() -> None:
    program = build()
    PROGRAM.write_bytes(program)
    HASH.write_text(sha256(program).hexdigest() + "\n")
    print(f"{len(program)} bytes, sha256 {sha256(program).hexdigest()}")


if __name__ == "__main__":
    main()
