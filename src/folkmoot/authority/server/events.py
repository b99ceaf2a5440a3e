"""What a run's server tells those who watch it, beside the effects of its machine."""

from folkmoot.host.event_log import Record


class Started(Record, frozen=True, tag=True):
    run_id: str
    address: str
    resumed: bool


class ConfigDiffers(Record, frozen=True, tag=True):
    """The file that was served is not the run that the journal holds, which goes on as it was."""

    changes: tuple[str, ...]


class ClaimVerified(Record, frozen=True, tag=True):
    sender: bytes
    location: str


class ClaimTrusted(Record, frozen=True, tag=True):
    """Not checked: the server cannot read the store."""

    sender: bytes
    location: str
    why: str


class ClaimRefused(Record, frozen=True, tag=True):
    sender: bytes
    location: str
    why: str


class Stopped(Record, frozen=True, tag=True):
    """Nothing is lost: the journal has all that a later start needs."""
