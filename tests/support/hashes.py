"""Hashes one item at a time, as they are defined: what the vectorised ones are compared with."""


def fnv1a(data: bytes, key: int) -> int:
    """FNV-1a of `data`, 64 bits, starting from `key`."""
    for byte in data:
        key = ((key ^ byte) * 0x100000001B3) & (1 << 64) - 1
    return key
