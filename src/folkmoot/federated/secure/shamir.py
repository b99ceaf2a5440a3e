"""Shamir's secret sharing of 32-byte secrets: any `threshold` shares rebuild, fewer say nothing.

Arithmetic is modulo the smallest prime above 2²⁵⁶, so every 32-byte secret has its place and
holders may be as many as there are numbers. Randomness is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


class Rebuild:
    """Rebuilds secrets from the shares of one set of holders; the weights are computed once."""

    def __init__(self, holders: Sequence[int]) -> None:
        if len(set(holders)) != len(holders) or min(holders, default=0) < 1:
            raise ValueError(f"holders must be different numbers from 1 on, not {list(holders)}")
        self._weights = {x: _lagrange_at_zero(x, holders) for x in holders}

    def secret(self, shares: Mapping[int, bytes]) -> bytes:
        """The secret, when there are shares of exactly these holders.

        Shares that do not belong together give some other number; mostly one that is no secret,
        which is a ValueError, and otherwise a secret that opens nothing.
        """
        parts = (int.from_bytes(shares[x], "little") * w for x, w in self._weights.items())
        total = sum(parts) % PRIME
        if total >> (8 * SECRET_BYTES):
            raise ValueError("the shares do not belong to one secret")
        return total.to_bytes(SECRET_BYTES, "little")


def _lagrange_at_zero(x: int, holders: Sequence[int]) -> int:
    numerator = denominator = 1
    for other in holders:
        if other != x:
            numerator = numerator * other % PRIME
            denominator = denominator * (other - x) % PRIME
    return numerator * pow(denominator, -1, PRIME) % PRIME
