"""The coordinator's side of the bucket: `<round>/global` and `<round>/<participant_id>`.

- An update is taken into a private file before it is judged: a bounded download, or in a folder
  bucket a copy. A file that only we could write to is linked instead: nobody else has a hand in it,
  and who is us could as well change the copy. The private file is named by the digest that was
  announced, so what was judged is what is counted, whatever its sender does to the object
  afterwards, or announces besides.
- A coordinator that carries weights itself has updates in private files from the start.
- A global model is written whole, synced, and only then named.
- Old rounds are pruned by policy, private copies when their round is over.

Calls block; the coordinator makes them on its worker threads.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from folkmoot.core.federation.state import Delivery
from folkmoot.exchange.bucket import Bucket, BucketError, Missing, TooLarge
from folkmoot.exchange.bucket.keys import checked_key
from folkmoot.federated.coordinator.sent_model import SentModel
from folkmoot.federated.model_file.file_stat import only_we_can_write, stamp
from folkmoot.federated.model_file.hashing_writer import PIECE, HashingWriter
from folkmoot.federated.model_file.layout import Layout
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.model_file.writer import reopened
from folkmoot.federated.participant.bucket import SPARE
from folkmoot.federated.transfer.uploads import Upload, Uploads, arrived
from folkmoot.host.files import StagedFile, write_atomically

READ = 1 << 20
#: Of linux/fs.h: the target gets the source's blocks, to copy when either is written to.
FICLONE = 0x40049409


class NotAnnounced(BucketError):
    """The object is another than the one announced."""


Arriving = Callable[[Upload], None]
"""Is shown an update that comes out of a remote bucket, when it begins."""


def no_reader(upload: Upload) -> None:
    """Of an update that is looked at when all of it is there."""


class CoordinatorBucket:
    def __init__(
        self, bucket: Bucket, folder: Path, max_object: int, *, carried: bool = False
    ) -> None:
        self.bucket, self.max_object = bucket, max_object
        self._folder = folder
        self._spool = folder / "spool"
        self._spool.mkdir(parents=True, exist_ok=True)
        #: Whether participants send updates to us and not to the bucket.
        self.carried = carried
        #: Updates that come piece by piece, from participants or out of a remote bucket.
        self.uploads = Uploads(self._spool, self._spool / SPARE)
        if bucket.folder is None:
            # Of a model that is in the bucket we keep a copy, which is not synced: it is read anew.
            for copy in self._spool.glob("*/global"):
                copy.unlink()
        #: The last global model that we published ourselves.
        self._last: tuple[int, bytes] = (-1, b"")
        #: The layout of the global model that was asked for last.
        self._layout: tuple[int, Layout] = (-1, {})

    # Updates.

    def take(self, delivery: Delivery, limit: int, arriving: Arriving = no_reader) -> Path:
        """A private copy of what was announced; raises `Missing`, `TooLarge` or `NotAnnounced`."""
        key, path = checked_key(self.bucket.url, delivery.key), self.taken(delivery)
        if self.carried:
            if not path.exists():
                raise Missing("coordinator", key, "these bytes did not arrive")
            return path
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        limit = min(limit, self.max_object)
        if self.bucket.folder is None:
            self._take_remote(delivery, limit, arriving)
            return path
        try:
            _link_or_copy(self.bucket.folder / key, path, limit)
        except FileNotFoundError:
            raise Missing(self.bucket.url, key, "there is no such object") from None
        except _TooLong:
            raise TooLarge(self.bucket.url, key, f"more than {limit} bytes") from None
        return path

    @property
    def hashes(self) -> bool:
        """Whether what was taken is known to have its digest: it was hashed as it came."""
        return self.carried or self.bucket.folder is None

    def taken(self, delivery: Delivery) -> Path:
        """Where the private copy of an update is, if it was taken."""
        return arrived(self._spool, delivery.key, delivery.digest)

    def finite_layout(self, delivery: Delivery) -> Layout | None:
        """Its layout, if it was seen as it came that the whole of it is a model of finite values.

        And is here now: who is not good is deleted.
        """
        layout = self.uploads.finite_layout(delivery.key, delivery.digest)
        return layout if layout is not None and self.taken(delivery).exists() else None

    def forget_rounds(self, last: int) -> None:
        """Delete the private copies of every round up to `last`."""
        self.uploads.forget(last)
        for entry in _rounds(self._spool, last):
            if self.bucket.folder is None:
                self._put_aside(entry / "global", _spare(entry / "global"))
            _remove(entry)
        if (sums := self.sum_path(last).parent).exists():
            for entry in _rounds(sums, last):
                entry.unlink()

    def consume(self, used: Iterable[Delivery]) -> None:
        """These updates are part of a global model, and are nobody's business any more.

        Their files are put aside for the next ones of their senders to be written over them: a
        file that is there already costs a fraction of a new one.
        """
        used = list(used)
        if self.bucket.folder is None:
            self.bucket.delete_all([delivery.key for delivery in used])
        for delivery in used:
            if self.carried or self.bucket.folder is None:
                self._put_aside(self.taken(delivery), self._spare_of(delivery))
            else:
                self.taken(delivery).unlink(missing_ok=True)
                path = self.bucket.folder / delivery.key
                self._put_aside(path, _spare(path))

    def archive(self, used: Iterable[Delivery]) -> None:
        """These updates are part of a global model, and stay with it in the bucket."""
        if not self.carried or self.bucket.folder is None:
            return  # they are there
        for delivery in used:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self.taken(delivery), self.bucket.folder / delivery.key)

    def _spare_of(self, delivery: Delivery) -> Path:
        """Where a private copy of an earlier update of the same sender waits."""
        return self._spool / SPARE / delivery.id

    def _put_aside(self, path: Path, spare: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            try:
                os.replace(path, spare)
            except FileNotFoundError:  # the first spare of all, or nothing to put aside
                spare.parent.mkdir(exist_ok=True)
                os.replace(path, spare)

    # Global models.

    def global_path(self, round_: int) -> Path:
        """A local file of the round's global model; downloaded once when the bucket is remote."""
        path = self.global_target(round_)
        if self.bucket.folder is None and not path.exists():
            _, pieces = self.bucket.read(f"{round_}/global", self.max_object)
            with StagedFile(path, partial(reopened, _spare(path))) as staged:
                for piece in pieces:
                    staged.write(piece)
                staged.commit(durable=False)
        return path

    def global_layout(self, round_: int) -> Layout:
        """The layout of the round's global model; of one round, its header is read once."""
        known, layout = self._layout
        if known != round_:
            with ModelFile(self.global_path(round_)) as model:
                layout = model.layout
            self._layout = round_, layout
        return layout

    def global_target(self, round_: int) -> Path:
        """Where to write the round's global model before it is published."""
        return (self.bucket.folder or self._spool) / f"{round_}/global"

    def new_global(self, round_: int, layout: Layout) -> HashingWriter:
        """The round's global model, to be written; over the file of a pruned one if there is."""
        path = self.global_target(round_)
        if self.bucket.folder is None:
            return SentModel(self.bucket, f"{round_}/global", path, layout, _spare(path))
        return HashingWriter(path, layout, _spare(path), mapped=True)

    def publish_global(self, round_: int, written: HashingWriter) -> str:
        """Put a written global model where participants read it; its digest."""
        digest = written.digest().hex()
        self._layout = (-1, {})
        written.commit(durable=self.bucket.folder is not None)
        self._layout = round_, written.layout
        if isinstance(written, SentModel):
            written.arrive()
        elif not self.carried:
            self._last = round_, stamp(written.found)
        return digest

    def global_stamp(self, round_: int) -> bytes:
        """By which participants on this machine know the round's global model, if they can."""
        last, found = self._last
        return found if last == round_ else b""

    def signed_urls(self, round_: int, participant_id: str, seconds: int) -> tuple[str, str]:
        """With which a participant reads the round's global model and writes its update."""
        return (
            self.bucket.signed_url("GET", f"{round_}/global", seconds),
            self.bucket.signed_url("PUT", f"{round_}/{participant_id}", seconds),
        )

    # What strategies remember between rounds.

    def memory_path(self, round_: int) -> Path:
        return self._folder / "memory" / str(round_)

    def sum_path(self, round_: int) -> Path:
        """Where an aggregator's sum of a round is."""
        return self._folder / "sums" / str(round_)

    def note_release(self, seed: bytes) -> int:
        """Note a noisy sum before anybody can see it; how many different ones there were so far."""
        path, name = self._folder / "releases", blake3(seed).hexdigest()
        noted = path.read_text().split() if path.exists() else []
        if name not in noted:
            noted.append(name)
            write_atomically(path, "\n".join(noted).encode())
        return len(noted)

    # Pruning.

    def prune(self, oldest: int) -> int:
        """Delete every object of rounds before `oldest`; how many."""
        if self.bucket.folder is None:
            return self._prune_remote(oldest)
        count = 0
        for entry in _rounds(self.bucket.folder, oldest - 1):
            count += sum(1 for _ in entry.iterdir())
            self._put_aside(entry / "global", _spare(entry / "global"))
            _remove(entry)
        return count

    def _prune_remote(self, oldest: int) -> int:
        if oldest < 1:
            return 0
        found = self.bucket.list(str(oldest - 1))
        self.bucket.delete_all([object_.key for object_ in found])
        return len(found)

    def _take_remote(self, delivery: Delivery, limit: int, arriving: Arriving) -> None:
        size, pieces = self.bucket.read(delivery.key, limit)
        upload = self.uploads.download(delivery.key, size)
        try:
            arriving(upload)
            for piece in pieces:
                # In stretches that stay in the cache while they are written and hashed.
                for start in range(0, len(piece), PIECE):
                    upload.write(piece[start : start + PIECE])
            if (found := upload.hexdigest()) != delivery.digest:
                why = f"is not what was announced: its digest is {found}"
                raise NotAnnounced(
                    self.bucket.url, delivery.key, f"{why}, expected {delivery.digest}"
                )
            upload.finish()
        except BaseException:
            upload.drop()
            raise


def _rounds(folder: Path, last: int) -> list[Path]:
    """The folders of rounds up to `last`."""
    return [entry for entry in folder.iterdir() if entry.name.isdigit() and int(entry.name) <= last]


def _remove(folder: Path) -> None:
    """Delete a round's folder, which is mostly empty by now."""
    try:
        folder.rmdir()
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def _spare(path: Path) -> Path:
    """Where a used up file of a folder bucket waits for its owner to write over it."""
    return path.parent.parent / SPARE / path.name


class _TooLong(Exception):
    pass


def _link_or_copy(source: Path, target: Path, limit: int) -> None:
    """A name of our own for bytes that nobody else can change; at most `limit` of them."""
    if source.is_symlink():  # and should it become one now, then opening it fails
        raise FileNotFoundError(source)
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(source)
        if found.st_size > limit:
            raise _TooLong
        if not (only_we_can_write(found) and _linked(source, target, found)):
            _copy(file, target, limit)


def _linked(source: Path, target: Path, found: os.stat_result) -> bool:
    """Whether the very file that was looked at could be linked; another disk cannot."""
    with contextlib.suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        if os.path.samestat(target.lstat(), found):
            return True
        target.unlink()
    return False


def _copy(file: BinaryIO, target: Path, limit: int) -> None:
    """Copy, without moving a byte on file systems that share blocks."""
    with target.open("xb") as out:
        with contextlib.suppress(OSError):
            fcntl.ioctl(out.fileno(), FICLONE, file.fileno())
            return
        left, buffer = limit, memoryview(bytearray(READ))
        while got := file.readinto(buffer):  # type: ignore[attr-defined]
            if (left := left - got) < 0:
                raise _TooLong
            out.write(buffer[:got])
