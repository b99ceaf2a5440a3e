"""What a participant's owner asks of a federation before anything is trained for it.

A `participant.toml`, or arguments. A coordinator is a stranger: what it tells is checked
(`answers.py`), and what it asks for has to be what the owner agreed to. Without it nothing is
trained, and the reason is said.
"""

import posixpath
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import msgspec

from folkmoot.core.config import Broken, decode
from folkmoot.federated.names import CARRIED, PUBLIC_KEY
from folkmoot.federated.secure.participant_attempt import Demands
from folkmoot.host.files import read_text
from folkmoot.host.places import below

#: In `buckets`: whatever the coordinator says, as for a federation of one's own.
ALL = "all"


class NotAgreed(ValueError):
    """The coordinator asks for what our owner did not agree to; the message says what to do."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults protect the machine; what protects the data has to be asked for."""

    # The coordinator's public key in hex. With none, the first one that answers for a run is kept
    # beside our own key, and no other is believed afterwards.
    coordinator: str = ""
    # Folders and URLs that weights may be read from and written to, with all that lies in them;
    # "all" agrees to any. A coordinator that carries them itself needs no bucket.
    buckets: tuple[str, ...] = ()
    # Give away updates under masks only, so that nobody sees more than their sum.
    masking: bool = False
    # Of how many a masked sum is made at the least, and how many of them have to stay to the end; a
    # threshold above two thirds is always asked for. A third of `least_cohort` may not collude.
    least_cohort: int = 3
    least_threshold: int = 0
    # Of the noise that members add to a masked sum: its deviation in multiples of what one of them
    # can move the sum by. About 1 is usual.
    least_noise: float = 0.0
    # Bytes of the largest model that is read.
    most_bytes: int = 8 << 30
    # Rounds and epochs a round that we train, at the most; 0 sets no limit.
    most_rounds: int = 0
    most_epochs: int = 0

    def rules(self) -> Iterator[Broken]:
        if self.coordinator and not PUBLIC_KEY.fullmatch(self.coordinator):
            yield Broken("coordinator", "must be 64 hex digits, as `federate serve` prints them")
        for name in ("most_rounds", "most_epochs"):
            if not 0 <= getattr(self, name) < 2**31:
                yield Broken(name, "must be 0 (no limit) or more")
        if not 2 <= self.least_cohort < 2**31:
            yield Broken("least_cohort", "must be 2 or more: a sum of one is no sum")
        if not 0 <= self.least_threshold < 2**31:
            yield Broken("least_threshold", "must be 0 (above two thirds) or more")
        if not 0 <= self.least_noise < 1e6:
            yield Broken("least_noise", "must be from 0 (none) to 1,000,000")
        if self.most_bytes < 1:
            yield Broken("most_bytes", "must be 1 or more")

    @property
    def demands(self) -> Demands:
        return Demands(self.least_cohort, self.least_threshold)

    def check(self) -> None:
        """Raise ValueError for what `participant.toml` would be refused for."""
        for broken in self.rules():
            raise ValueError(f"{broken.field} {broken.reason}")

    def agree_to_bucket(self, url: str) -> str:
        """`url`, which the coordinator told, when weights may lie there."""
        agreed = url == CARRIED or ALL in self.buckets
        if agreed or any(below(url, place) is not None for place in self.buckets):
            return url
        raise NotAgreed(
            f"the coordinator keeps the weights in {url!r}, which you did not agree to. If you do, "
            f"join with --allow-bucket {url} (buckets in participant.toml); or name a bucket of "
            "yours to use instead, with --bucket"
        )

    def agree_to_url(self, url: str, key: str) -> str:
        """`url`, with which the object `key` is read or written, when it may lie there."""
        parts = urllib.parse.urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc}{posixpath.dirname(parts.path)}"
        plain = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
        if not plain or not url.isascii() or not url.isprintable() or "\\" in url:
            raise NotAgreed("a signed URL of the coordinator is not a plain http or https one")
        if not parts.path.endswith(f"/{key}"):
            raise NotAgreed(f"a signed URL of the coordinator is not that of {key}")
        if ALL in self.buckets or any(below(place, agreed) is not None for agreed in self.buckets):
            return url
        told = place.removesuffix(f"/{key.partition('/')[0]}")
        raise NotAgreed(
            f"the coordinator wants weights read from and written to {told}, which you did not "
            f"agree to. If you do, join with --allow-bucket {told} (buckets in participant.toml)"
        )

    def agree_to_task(self, *, masked: bool, noise: float, epochs: int, trained: int) -> None:
        """Refuse a round that asks for more than we give, or protects us less than we ask."""
        if self.masking and not masked:
            raise NotAgreed(
                "the coordinator asks for an update without masks, and you asked for masking: "
                "its [secure] is off"
            )
        if noise < self.least_noise:
            raise NotAgreed(
                f"the coordinator asks for a sum with noise of {noise:g} times the clip; you ask "
                f"for {self.least_noise:g} (least_noise)"
            )
        if self.most_epochs and epochs > self.most_epochs:
            raise NotAgreed(
                f"the coordinator asks for {epochs} epochs a round; you agreed to "
                f"{self.most_epochs} (most_epochs)"
            )
        if self.most_rounds and trained >= self.most_rounds:
            raise NotAgreed(f"{trained} rounds are trained, as many as you agreed to (most_rounds)")


def load_policy(path: Path) -> Policy:
    """The policy that the file at `path` describes."""
    return decode(read_text(path), Policy, path.name)
