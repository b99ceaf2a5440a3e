"""What the owner of an aggregator writes: `region.toml`.

It is a `federation.toml` for those below, without what the coordinator above decides, and a table
`[above]` that says where that one is. Paths are relative to the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from folkmoot.core.config import Broken, decode
from folkmoot.core.federation import Rules
from folkmoot.core.federation.config import Scalar
from folkmoot.federated.compression.codec import Compression
from folkmoot.federated.coordinator.config import (
    BucketConfig,
    Federation,
    MetricsConfig,
    SecurityConfig,
    ServerConfig,
    rooted,
)
from folkmoot.federated.names import PLAIN_NAME
from folkmoot.federated.participant.participation import Settings
from folkmoot.federated.participant.policy import Policy
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.host.files import read_text
from folkmoot.host.tls import client_tls

ENDLESS = 2**31 - 1
#: What the coordinator above decides, and the value that says so here.
DECIDED_ABOVE = {
    "rounds": ENDLESS,
    "epochs": 1,
    "buffer": 0,
    "max_staleness": 0,
    "stop_after": 0,
    "min_improvement": 0.0,
}


class RegionRules(Rules, frozen=True, kw_only=True):
    """`[rounds]` of a region: who must be there and how long they may take."""

    rounds: int = ENDLESS

    def rules(self) -> Iterator[Broken]:
        for name, value in DECIDED_ABOVE.items():
            if getattr(self, name) != value:
                yield Broken(name, "is decided by the coordinator above: leave it out")
        yield from super().rules()


class AboveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[above]`: the coordinator that gets our sums, and what we ask of it."""

    address: str
    run_id: str
    # A file with our key, made when it is not there; its owner lists it as an aggregator's.
    key: str = "aggregator.key"
    # The coordinator's public key in hex; with none, the first that answers is kept beside ours.
    coordinator: str = ""
    # A bucket to use, whatever we are told; and buckets that we agree to.
    bucket: str = ""
    buckets: tuple[str, ...] = ()
    # PEM files: the authority of its certificate, and ours if it asks for one.
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    # What we say of ourselves, for its `require`.
    properties: dict[str, Scalar] = {}

    def rules(self) -> Iterator[Broken]:
        if not PLAIN_NAME.fullmatch(self.run_id):
            yield Broken("run_id", "must be 1 to 128 letters, digits or . _ -")
        if bool(self.tls_cert) != bool(self.tls_key):
            yield Broken("tls_cert", "needs tls_key, and the other way round")
        yield from self.policy.rules()

    @property
    def policy(self) -> Policy:
        return Policy(coordinator=self.coordinator, buckets=self.buckets)


class RegionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A whole `region.toml`."""

    # The name by which participants below join; any, also that of the federation above.
    run_id: str
    above: AboveConfig
    rounds: RegionRules = RegionRules()
    server: ServerConfig = ServerConfig()
    bucket: BucketConfig = BucketConfig()
    security: SecurityConfig = SecurityConfig()
    secure: SecureConfig = SecureConfig()
    metrics: MetricsConfig = MetricsConfig()
    compression: Compression = Compression()

    def rules(self) -> Iterator[Broken]:
        # First weights are made above.
        yield from (one for one in self.below().rules() if one.field != "initial_weights")

    def below(self) -> Federation:
        """The federation of those below, as its coordinator runs it."""
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name != "above"}
        return Federation(**own | {"rounds": Rules(**asdict(self.rounds))})


@dataclass(frozen=True)
class Aggregator:
    """An aggregator's two halves, with paths made absolute."""

    below: Federation
    above: Settings
    properties: dict[str, Scalar]


def load_region(path: Path) -> Aggregator:
    """The aggregator that the file at `path` describes."""
    return region_at(decode(read_text(path), RegionConfig, path.name), path.parent)


def region_at(config: RegionConfig, folder: Path) -> Aggregator:
    """`config` with relative paths taken from `folder`."""

    def at(name: str) -> Path | None:
        return (folder / name).absolute() if name else None

    above = config.above
    key = str(at(above.key))
    settings = Settings(
        address=above.address,
        run_id=above.run_id,
        identity=key,
        bucket=above.bucket,
        policy=above.policy,
        tls=client_tls(at(above.tls_ca), at(above.tls_cert), at(above.tls_key)),
        log=f"{key}.events.jsonl",
    )
    return Aggregator(rooted(config.below(), folder), settings, above.properties)
