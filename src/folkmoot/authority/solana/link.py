"""One relocatable BPF object into a program that Solana's loader takes: sBPF version 3.

The file is a header and two segments: read-only data at address 0, code at 1 << 32. A call of an
undefined symbol is a system call and becomes the hash of its name. What the virtual machine would
run differently from what the compiler meant is refused here: 32-bit arithmetic, which it
sign-extends; and variables that can change, which it has no place for.
"""

import struct
from typing import NamedTuple

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQ")
_INSTRUCTION = struct.Struct("<BBhi")
ET_REL, ET_DYN, EM_BPF, SBPF_VERSION = 1, 3, 247, 3
SYMTAB, NOBITS, REL = 2, 8, 9
WRITE, ALLOC, EXECUTE = 1, 2, 4
CALL, LOAD64 = 0x85, 0x18
ALU32 = 0x04
R_64_64, R_ABS64, R_64_32 = 1, 2, 10
CODE_AT = 1 << 32


class LinkError(ValueError):
    """The object cannot become a program; the message says why."""


class ElfSection(NamedTuple):
    name: str
    kind: int
    flags: int
    data: bytes
    link: int
    info: int


class Symbol(NamedTuple):
    name: str
    section: int
    value: int


def link(object_: bytes, entry: str = "entrypoint") -> bytes:
    """The program in `object_`, whose code begins at the function `entry`."""
    sections = _sections(object_)
    symbols = _symbols(sections)
    code_at = [i for i, s in enumerate(sections) if s.flags & EXECUTE and s.data]
    data_at = [i for i, s in enumerate(sections) if s.flags & (ALLOC | EXECUTE) == ALLOC and s.data]
    for at in data_at:
        if sections[at].flags & WRITE or sections[at].kind == NOBITS:
            raise LinkError(f"{sections[at].name} holds variables that can change")
    if len(code_at) != 1:
        raise LinkError(f"expected one section of code, found {len(code_at)}")
    offsets: dict[int, int] = {code_at[0]: 0}
    data = bytearray()
    for at in data_at:
        offsets[at] = len(data)
        data += sections[at].data + bytes(-len(sections[at].data) % 8)
    code = bytearray(sections[code_at[0]].data)
    _relocate(sections, symbols, offsets, code_at[0], code, data)
    _check(bytes(code))
    start = next((s.value for s in symbols if s.name == entry and s.section == code_at[0]), None)
    if start is None:
        raise LinkError(f"there is no function {entry}")
    return _file(bytes(data), bytes(code), start)


def _sections(object_: bytes) -> list[ElfSection]:
    head = _HEADER.unpack_from(object_)
    if head[0][:6] != b"\x7fELF\x02\x01" or head[1] != ET_REL or head[2] != EM_BPF:
        raise LinkError("not a relocatable BPF object")
    at, count, names_at = head[6], head[12], head[13]
    raw = [_SECTION.unpack_from(object_, at + k * _SECTION.size) for k in range(count)]
    names = object_[raw[names_at][4] :]
    return [
        ElfSection(
            _string(names, r[0]), r[1], r[2],
            bytes(r[5]) if r[1] == NOBITS else object_[r[4] : r[4] + r[5]], r[6], r[7],
        )
        for r in raw
    ]  # fmt: skip


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()


def _symbols(sections: list[ElfSection]) -> list[Symbol]:
    for section in sections:
        if section.kind == SYMTAB:
            names = sections[section.link].data
            rows = _SYMBOL.iter_unpack(section.data)
            return [Symbol(_string(names, r[0]), r[3], r[4]) for r in rows]
    raise LinkError("the object has no symbols")


def _relocate(
    sections: list[ElfSection],
    symbols: list[Symbol],
    offsets: dict[int, int],
    code_section: int,
    code: bytearray,
    data: bytearray,
) -> None:
    for section in sections:
        if section.kind != REL or section.info not in offsets:
            continue
        for at, info in _RELOCATION.iter_unpack(section.data):
            symbol, kind = symbols[info >> 32], info & 0xFFFFFFFF
            if kind == R_64_32:
                _call(code, at, symbol, code_section)
                continue
            if symbol.section not in offsets:
                raise LinkError(f"nothing defines {symbol.name or 'a symbol'}")
            target = offsets[symbol.section] + symbol.value
            target += CODE_AT if symbol.section == code_section else 0
            if kind == R_64_64:
                _load(code, at, target)
            elif kind == R_ABS64:
                place = at + offsets[section.info]
                value = struct.unpack_from("<Q", data, place)[0] + target
                struct.pack_into("<Q", data, place, value)
            else:
                raise LinkError(f"relocation of kind {kind}")


def _call(code: bytearray, at: int, symbol: Symbol, code_section: int) -> None:
    if symbol.section == code_section:
        offset = struct.unpack_from("<i", code, at + 4)[0]
        target = symbol.value // 8 + offset + 1
        struct.pack_into("<BBhi", code, at, CALL, 0x10, 0, target - at // 8 - 1)
    elif symbol.name.startswith("sol_"):
        struct.pack_into("<BBhI", code, at, CALL, 0, 0, murmur3_32(symbol.name.encode()))
    else:
        raise LinkError(f"calls {symbol.name}, which is neither here nor a system call")


def _load(code: bytearray, at: int, target: int) -> None:
    """Put an address into the two halves of a 64-bit load."""
    low, high = (struct.unpack_from("<I", code, at + k)[0] for k in (4, 12))
    value = target + (high << 32 | low)
    struct.pack_into("<I", code, at + 4, value & 0xFFFFFFFF)
    struct.pack_into("<I", code, at + 12, value >> 32)


def _check(code: bytes) -> None:
    skip = False
    for operation, registers, _, _ in _INSTRUCTION.iter_unpack(code):
        if skip:
            skip = False
            continue
        skip = operation == LOAD64
        # Byte swaps share the class of 32-bit arithmetic and are as they should be.
        if operation & 0x07 == ALU32 and operation & 0xF0 != 0xD0:
            raise LinkError("the code has 32-bit arithmetic: compile with -mcpu=v2")
        if operation == CALL and registers == 0x20:
            raise LinkError("the code calls a kernel helper")


def _file(data: bytes, code: bytes, start: int) -> bytes:
    body = _HEADER.size + 2 * _SEGMENT.size
    head = _HEADER.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9), ET_DYN, EM_BPF, 1, CODE_AT + start, _HEADER.size, 0,
        SBPF_VERSION, _HEADER.size, _SEGMENT.size, 2, 0, 0, 0,
    )  # fmt: skip
    readable, executable, load = 4, 1, 1
    segments = (
        (load, readable, body, 0, 0, len(data), len(data), 8),
        (load, executable, body + len(data), CODE_AT, CODE_AT, len(code), len(code), 8),
    )
    return head + b"".join(_SEGMENT.pack(*s) for s in segments) + data + code


def murmur3_32(data: bytes) -> int:
    """The hash that names a system call."""
    h, mask = 0, 0xFFFFFFFF
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        h ^= _mixed(k)
        h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    if whole < len(data):
        h ^= _mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


def _mixed(k: int) -> int:
    k = k * 0xCC9E2D51 & 0xFFFFFFFF
    return (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF
