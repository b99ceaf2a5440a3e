"""Seeds that nobody chooses: every witness reveals what it committed itself to when it joined.

A client makes a chain of hashes from a secret and joins with its end. With each proof it reveals
the link before; the program checks that it hashes to the last one, and mixes it into the run. The
seed of what begins next follows from the mixture, the epoch, the phase and the number of rounds.

Who ticks, who orders transactions and who proposes a block choose nothing. A witness that sees all
others' links can keep its own back: one bit, for the price of not being heard as a witness.
"""

from functools import cached_property
from hashlib import sha256
from typing import Any

from folkmoot.host.signing import Identity

# A client reveals one link a round at most. Who has used all joins anew.
LINKS = 65_536


class HashChain:
    """One client's links."""

    def __init__(self, secret: bytes, links: int = LINKS) -> None:
        self._secret, self._links = secret, links

    @cached_property
    def _all(self) -> list[bytes]:
        link, made = sha256(self._secret).digest(), []
        for _ in range(self._links):
            made.append(link)
            link = sha256(link).digest()
        return [*made, link]

    @cached_property
    def _before(self) -> dict[bytes, bytes]:
        return dict(zip(self._all[1:], self._all, strict=False))

    @property
    def end(self) -> bytes:
        """What a client joins with."""
        return self._all[-1]

    def reveal(self, last: bytes) -> bytes | None:
        """The link before `last`; None when that is the first one, or none of this chain."""
        return self._before.get(last)


def chain_of(identity: Identity, run_id: str, salt: int) -> HashChain:
    """The chain of a key that joined with `salt`; a client that restarts finds it again."""
    name = sha256(run_id.encode()).digest()
    return HashChain(identity.sign(b"folkmoot seeds 1" + name + salt.to_bytes(8, "little")))


def next_seed(run: Any, reveal: bytes = b"") -> int:
    """The seed that the program takes for what begins next, of a `layout.RUN` record.

    `reveal` is what the message reveals that lets it begin.
    """
    mix = run["mix"].tobytes()
    if reveal:
        mix = bytes(a ^ b for a, b in zip(mix, reveal, strict=True))
    counted = (run["epoch_number"], run["phase"], run["epoch"]["round_count"])
    place = b"".join(int(number).to_bytes(8, "little") for number in counted)
    return int.from_bytes(sha256(mix + place).digest()[:8], "little")
