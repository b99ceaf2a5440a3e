"""What a participant remembers of each run: whose coordinator it is, and what it did for it.

A small file beside the participant's key. Without one it is remembered for this once.
"""

from pathlib import Path

import msgspec

from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.host.files import write_atomically


class KnownRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`coordinator` is its public key in hex, once it is known."""

    coordinator: str = ""
    # Rounds that we trained, over all our lives.
    trained: int = 0
    # The last round in which we confirmed the survivors of a masked sum, and a digest of them.
    confirmed_round: int = -1
    confirmed: str = ""


class Known:
    """The memory of one participant about one run; what is changed is on the disk at once."""

    def __init__(self, path: Path | None, run_id: str, given: str = "") -> None:
        """`given` is the coordinator's key as our owner knows it: it overrules what is kept."""
        self._path, self._run_id = path, run_id
        self.run = self._runs().get(run_id, KnownRun())
        self._given = given

    @classmethod
    def beside(cls, identity: str, run_id: str, given: str = "") -> "Known":
        """In a file beside our key, if that is in a file."""
        return cls(Path(f"{identity}.known.json") if identity else None, run_id, given)

    def check_coordinator(self, public: bytes) -> None:
        """Refuse any coordinator but the known one; the first that comes is the known one."""
        shown, known = public.hex(), self._given or self.run.coordinator
        if not known:
            self.change(coordinator=shown)
        elif shown != known:
            why = "you gave" if self._given else f"{self._path or 'this process'} remembers"
            raise NotAgreed(
                f"the coordinator of run {self._run_id!r} shows the key {shown}, but {why} {known}."
                " Somebody else answers in its place, or its owner began anew: ask, and only if "
                f"the new key is right, join with --coordinator {shown}"
            )

    def count_round(self, durable: bool) -> None:
        """We trained one more; that we did at all is always kept."""
        trained = self.run.trained + 1
        self.change(durable or trained == 1, trained=trained)

    def change(self, durable: bool = True, **fields: object) -> None:
        """Remember these fields; what is `durable` also after a crash."""
        self.run = msgspec.structs.replace(self.run, **fields)
        if durable and self._path is not None:
            runs = {**self._runs(), self._run_id: self.run}
            write_atomically(self._path, msgspec.json.format(msgspec.json.encode(runs)))

    def _runs(self) -> dict[str, KnownRun]:
        if self._path is None or not self._path.exists():
            return {}
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, KnownRun])
        except msgspec.DecodeError as error:
            raise ValueError(
                f"{self._path} is not what we wrote ({error}); it says which coordinators we know: "
                "put it back, or remove it to know none"
            ) from None
