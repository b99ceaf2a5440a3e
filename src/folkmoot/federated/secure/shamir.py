"""Shamir's secret sharing of 32-byte secrets: any `threshold` shares rebuild, fewer say nothing.

Arithmetic is modulo the smallest prime above 2²⁵⁶, so every 32-byte secret has its place and
holders may be as many as there are numbers. Randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
#: Sixteen bytes more than the prime has: their remainder is uniform to within 2⁻¹²⁸.
WIDE = SHARE_BYTES + 15

Randomness = Callable[[int], bytes]


def deal(secret: bytes, threshold: int, holders: int, randomness: Randomness) -> list[bytes]:
    """One share for each holder 1 … `holders`."""
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    if not 1 <= threshold <= holders:
        raise ValueError(f"a threshold of {threshold} needs as many holders; there are {holders}")
    drawn = [int.from_bytes(randomness(WIDE), "little") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "little"), *drawn]
    return [_value(coefficients, x).to_bytes(SHARE_BYTES, "little") for x in range(1, holders + 1)]


def _value(coefficients: Sequence[int], x: int) -> int:
    """The polynomial at `x`, by Horner's rule."""
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * x + coefficient) % PRIME
    return total


def rebuild(shares: Mapping[int, bytes]) -> bytes:
    """The secret from exactly `threshold` shares, by holder.

    Shares that do not belong together give some other number: a ValueError when it is no 32-byte
    secret, and otherwise a secret that opens nothing.
    """
    holders = tuple(shares)
    if not holders or min(holders) < 1:
        raise ValueError(f"holders are numbers from 1 on, not {list(holders)}")
    weights = _weights(holders)
    parts = (int.from_bytes(shares[x], "little") * weights[x] for x in holders)
    total = sum(parts) % PRIME
    if total >> (8 * SECRET_BYTES):
        raise ValueError("the shares do not belong to one secret")
    return total.to_bytes(SECRET_BYTES, "little")


@lru_cache(maxsize=16)
def _weights(holders: tuple[int, ...]) -> dict[int, int]:
    """The same for all secrets that the same holders rebuild, and there are many."""
    return {x: _lagrange_at_zero(x, holders) for x in holders}


def _lagrange_at_zero(x: int, holders: Sequence[int]) -> int:
    numerator = denominator = 1
    for other in holders:
        if other != x:
            numerator = numerator * other % PRIME
            denominator = denominator * (other - x) % PRIME
    return numerator * pow(denominator, -1, PRIME) % PRIME
