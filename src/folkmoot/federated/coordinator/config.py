"""What the owner of a federation writes: `federation.toml`.

Everything has a default except the run's name and the number of rounds. Paths are relative to
the file they stand in.
"""

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from folkmoot.core.config import Broken, decode
from folkmoot.core.federation import Rules
from folkmoot.core.federation.config import MAX_PARTICIPANTS, Scalar
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.aggregate.strategies import AnyStrategy, load_strategy, tag_of
from folkmoot.federated.compression.codec import Compression
from folkmoot.federated.coordinator.evaluation import EvaluationConfig
from folkmoot.federated.names import CARRIED, PLAIN_NAME, PUBLIC_KEY, is_participant_id
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.distributed_noise import PrivateSum
from folkmoot.federated.secure.messages import MAX_COHORT
from folkmoot.host.files import read_text

_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
#: With no url, on one machine: the folder `bucket` beside the journal.
BESIDE_JOURNAL = ""
#: In [aggregation]: a strategy of the owner's own.
OWN_STRATEGY = re.compile(r'^\s*strategy\s*=\s*["\'](?P<named>[\w.]+:\w+)["\']', re.MULTILINE)


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the coordinator listens and where it keeps what it must not forget."""

    host: str = "127.0.0.1"
    port: int = 50_061
    # Where weights are carried, if the coordinator carries them; 0 takes the port after `port`.
    weights_port: int = 0
    state: str = "federation-state"
    # Bytes of the largest request that is read.
    max_message: int = 65_536
    # Seconds that a connection may take to say what it wants, and to say nothing afterwards.
    handshake_timeout: float = 10.0
    idle_timeout: float = 300.0

    def rules(self) -> Iterator[Broken]:
        yield from _rules_to_listen(self.host, self.port)
        if not 0 <= self.weights_port <= 65_535:
            yield Broken("weights_port", "must be from 0 (the one after port) to 65535")
        if not self.state:
            yield Broken("state", "must name a folder")
        if not 1024 <= self.max_message <= 64 << 20:
            yield Broken("max_message", "must be from 1024 to 67108864 bytes")
        for name in ("handshake_timeout", "idle_timeout"):
            if not 0 < getattr(self, name) < 4e6:
                yield Broken(name, "must be more than 0 and less than 4,000,000 seconds")

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BucketConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights are: s3://, gs://, az://, a folder, or "coordinator", which carries them.

    With no url it is the coordinator, but where everybody is on one machine the folder `bucket`
    beside the journal.
    """

    url: str = ""
    # Credentials and endpoints, as obstore names them; better left to the environment.
    options: dict[str, str] = {}
    # Tell participants the url. Leave off when they reach the bucket by another name.
    tell: bool = True
    # Keep updates that became part of a global model, as long as their round is kept.
    keep_updates: bool = False
    # Give each participant a URL to read the round's model and one to write its own update, good
    # for presign_seconds, in place of a right to the bucket. For S3, GCS and Azure.
    presign: bool = False
    presign_seconds: int = 86_400
    # Rounds whose objects are kept; 0 keeps all.
    keep_rounds: int = 3
    # Bytes of the largest object that is read.
    max_object: int = 8 << 30

    @property
    def carried(self) -> bool:
        """Whether the coordinator carries the weights itself."""
        return self.url == CARRIED

    def rules(self) -> Iterator[Broken]:
        if not 0 <= self.keep_rounds < 2**31:
            yield Broken("keep_rounds", "must be 0 (all) or more")
        if self.presign and ("://" not in self.url or self.url.startswith("file:")):
            yield Broken("presign", "needs a bucket that can sign URLs: s3://, gs:// or az://")
        if not 1 <= self.presign_seconds <= 604_800:
            yield Broken("presign_seconds", "must be from 1 to 604800, the most that S3 allows")
        if not 1 <= self.max_object < 2**50:
            yield Broken("max_object", "must be 1 byte or more")


class SecurityConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may take part, and how the wire is protected."""

    # Name of each participant that may take part, and its public key in hex. With none, anybody
    # may take part, under its public key.
    participants: dict[str, str] = {}
    # The most that one participant counts for, in multiples of the (lower) median of samples;
    # 0 takes everybody's word. Of masked updates only their own sender knows the weight.
    max_weight: float = 10.0
    # Of these participants: name of each aggregator, and for how many it may speak at the most.
    aggregators: dict[str, int] = {}
    # PEM files. With a client authority, participants must show a certificate of it (mutual TLS).
    tls_certificate: str = ""
    tls_key: str = ""
    tls_client_authority: str = ""

    def rules(self) -> Iterator[Broken]:
        for name, key in self.participants.items():
            if not is_participant_id(name):
                yield Broken("participants", f"{name!r} is not a name: use letters, digits . _ -")
            if not PUBLIC_KEY.fullmatch(key):
                yield Broken("participants", f"{name}: a public key is 64 hex digits, got {key!r}")
        if len(set(self.participants.values())) != len(self.participants):
            yield Broken("participants", "two names have the same key")
        for name, most in self.aggregators.items():
            if name not in self.participants:
                yield Broken("aggregators", f"{name}: give its key in [security.participants] too")
            if not 1 <= most <= MAX_PARTICIPANTS:
                yield Broken("aggregators", f"{name}: from 1 to {MAX_PARTICIPANTS} participants")
        if self.max_weight and not 1 <= self.max_weight < 2**31:
            yield Broken("max_weight", "must be 1 or more, or 0 for no limit")
        if bool(self.tls_certificate) != bool(self.tls_key):
            yield Broken("tls_certificate", "needs tls_key, and the other way round")
        if self.tls_client_authority and not self.tls_certificate:
            yield Broken("tls_client_authority", "needs tls_certificate and tls_key")


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A Prometheus endpoint."""

    enable: bool = False
    host: str = "127.0.0.1"
    port: int = 9464

    def rules(self) -> Iterator[Broken]:
        yield from _rules_to_listen(self.host, self.port)


class Federation(msgspec.Struct, frozen=True, kw_only=True):
    """A whole `federation.toml`."""

    run_id: str
    rounds: Rules
    # 64 hex digits from which selections (and noise) follow; random and kept when left out.
    seed: str = ""
    # A safetensors file to begin with. With none, round 0 asks participants for their weights.
    initial_weights: str = ""
    server: ServerConfig = ServerConfig()
    bucket: BucketConfig = BucketConfig()
    aggregation: AnyStrategy = FedAvg()
    security: SecurityConfig = SecurityConfig()
    secure: SecureConfig = SecureConfig()
    metrics: MetricsConfig = MetricsConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    compression: Compression = Compression()
    # Given to every participant with its task, under what the strategy's own `settings` say.
    settings: dict[str, Scalar] = {}

    @property
    def private_sum(self) -> PrivateSum | None:
        """What members of a masked sum clip to and add, when it is private."""
        strategy = self.aggregation
        if not self.secure.enabled or not isinstance(strategy, Private):
            return None
        return PrivateSum(strategy.clip_norm, strategy.noise_multiplier, self.secure.precision)

    def rules(self) -> Iterator[Broken]:
        if self.secure.enabled and self.compression.method != "none":
            yield Broken("compression", "must be none when [secure] is on: sums need whole numbers")
        if not PLAIN_NAME.fullmatch(self.run_id):
            yield Broken("run_id", "must be 1 to 128 letters, digits or . _ -")
        if self.seed and not PUBLIC_KEY.fullmatch(self.seed):
            yield Broken("seed", "must be 64 hex digits, or left out")
        oldest = self.rounds.max_staleness + 2
        if 0 < self.bucket.keep_rounds < oldest:
            yield Broken("bucket", f"keep_rounds must be {oldest} or more (or 0): rounds are used")
        if self.secure.enabled and not self.aggregation.needs_only_the_mean:
            yield Broken(
                "aggregation", "must be fedavg, private or a server optimizer when [secure] is on"
            )
        if self.secure.enabled and self.rounds.min_participants < self.secure.least_cohort:
            least = self.secure.least_cohort
            yield Broken("rounds", f"min_participants must be [secure] least_cohort, {least}")
        private = self.private_sum
        if private and (wrong := private.wrong(self.rounds.capacity, MAX_COHORT)):
            yield Broken("aggregation", wrong)
        if self.secure.enabled and self.rounds.asynchronous:
            yield Broken("rounds", "buffer must be 0 when [secure] is on: a sum needs its cohort")
        if self.security.aggregators:
            yield from self._rules_of_sums()

    def _rules_of_sums(self) -> Iterator[Broken]:
        """Of an aggregator only the sum is known: what needs more than that would be wrong."""
        if isinstance(self.aggregation, Private):
            yield Broken(
                "aggregation",
                "cannot be private with [security.aggregators]: steps are cut and noise is added "
                "one by one, and of a region there is only the sum",
            )
        elif not self.aggregation.needs_only_the_mean:
            yield Broken(
                "aggregation",
                "must be fedavg or a server optimizer with [security.aggregators]: this one looks "
                "at single updates, and of a region there is only the sum",
            )
        if self.secure.enabled:
            yield Broken("secure", "must be off with [security.aggregators]: regions mask, not we")
        if self.rounds.asynchronous:
            yield Broken("rounds", "buffer must be 0 with [security.aggregators]")
        if not self.initial_weights:
            yield Broken(
                "initial_weights",
                "must name a file with [security.aggregators]: regions make no first weights",
            )


def _rules_to_listen(host: str, port: int) -> Iterator[Broken]:
    if not is_host(host):
        yield Broken("host", "must be a host name, an IPv4 or an IPv6 address")
    if not 0 <= port <= 65_535:
        yield Broken("port", "must be from 0 (any free port) to 65535")


def is_host(host: str) -> bool:
    """Whether `host` is an IPv4 or IPv6 address or a host name."""
    try:
        ipaddress.ip_address(host)
        return True
    except ValueError:
        labels = host.removesuffix(".").split(".")
        numeric = all(label.isdigit() for label in labels)
        return len(host) <= 253 and not numeric and all(_LABEL.fullmatch(x) for x in labels)


def load_federation(path: Path, default_bucket: str = CARRIED) -> Federation:
    """The federation that the file at `path` describes, with its paths made absolute."""
    return rooted(decode_federation(read_text(path), path.name), path.parent, default_bucket)


def decode_federation(text: str, name: str) -> Federation:
    """As `decode`, with a strategy of the owner's own where `module:Class` names one."""
    if found := OWN_STRATEGY.search(text):
        kind = load_strategy(found["named"])
        # In the file it goes by its place; for the decoder by its tag, on the same line.
        text = text[: found.start("named")] + tag_of(kind) + text[found.end("named") :]
        field = ("aggregation", AnyStrategy | kind, FedAvg())
        made: Any = msgspec.defstruct(
            "Federation", [field], bases=(Federation,), frozen=True, kw_only=True
        )
        return cast(Federation, decode(text, made, name))
    return decode(text, Federation, name)


def rooted(config: Federation, folder: Path, default_bucket: str = CARRIED) -> Federation:
    """`config` with relative paths taken from `folder`."""

    def at(name: str) -> str:
        return str((folder / name).absolute()) if name else ""

    security, bucket = config.security, config.bucket
    server = msgspec.structs.replace(config.server, state=at(config.server.state))
    url = bucket.url or default_bucket or str(Path(server.state) / "bucket")
    if url != CARRIED and "://" not in url:
        url = at(url)
    bucket = msgspec.structs.replace(bucket, url=url)
    return msgspec.structs.replace(
        config,
        initial_weights=at(config.initial_weights),
        server=server,
        bucket=bucket,
        security=msgspec.structs.replace(
            security,
            tls_certificate=at(security.tls_certificate),
            tls_key=at(security.tls_key),
            tls_client_authority=at(security.tls_client_authority),
        ),
    )
