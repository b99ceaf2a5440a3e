"""A repository of the Hugging Face Hub as a place for checkpoints: `hf://owner/name`.

It has the part of a bucket that checkpoints need: `put`, `stream`, `list`, `delete`. Each file is
a commit of its own; as everywhere, a checkpoint counts once its manifest is there, which is put
last. `transformers` loads one with `from_pretrained("owner/name", subfolder="step-00001200")`.
A repository that is not there is made with the first file, private.
The token comes from `hf auth login` or HF_TOKEN, the way every Hugging Face tool finds it.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from folkmoot.exchange.bucket.bucket import Bucket, ObjectInfo
from folkmoot.exchange.bucket.errors import (
    AccessDenied,
    BucketError,
    Missing,
    NotPossible,
    TooLarge,
    first_line,
)
from folkmoot.exchange.bucket.folder import PART
from folkmoot.exchange.bucket.keys import checked_key

SCHEME = "hf://"


def open_checkpoints(url: str) -> "Bucket | HubRepository":
    """The place for checkpoints that a URL names: a bucket, or a repository of the Hub."""
    return HubRepository(url) if url.startswith(SCHEME) else Bucket(url)


class HubRepository:
    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.folder: Path | None = None
        self._repo = self.url.removeprefix(SCHEME)
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", self._repo):
            raise NotPossible(url, "", "a repository of the Hub is written hf://owner/name")
        self._hub = _library()
        self._api = self._hub.HfApi()

    def put(self, key: str, body: Iterable[bytes | bytearray | memoryview]) -> None:
        checked_key(self.url, key)
        with tempfile.NamedTemporaryFile() as file:
            for piece in body:
                file.write(piece)
            file.flush()
            with self._translated(key):
                self._api.create_repo(self._repo, private=True, exist_ok=True)
                self._api.upload_file(
                    repo_id=self._repo,
                    path_in_repo=key,
                    path_or_fileobj=file.name,
                    commit_message=f"Store {key}",
                )

    def stream(self, key: str, limit: int) -> Iterator[bytes]:
        checked_key(self.url, key)
        with tempfile.TemporaryDirectory() as folder:
            with self._translated(key):
                url = self._hub.hf_hub_url(self._repo, key, endpoint=self._api.endpoint)
                found = self._api.get_hf_file_metadata(url=url)
                if found.size > limit:
                    why = f"the file has {found.size} bytes, at most {limit} allowed"
                    raise TooLarge(self.url, key, why)
                file = self._api.hf_hub_download(
                    self._repo, key, revision=found.commit_hash, local_dir=folder
                )
            with Path(file).open("rb") as content:
                while piece := content.read(PART):
                    yield piece

    def list(self, prefix: str = "") -> list[ObjectInfo]:
        """Every file under the folder `prefix`; none when there is no repository yet."""
        try:
            with self._translated(prefix):
                found = self._api.model_info(self._repo, files_metadata=True).siblings
        except Missing:
            return []
        files = (ObjectInfo(file.rfilename, file.size) for file in found)
        inside = (entry for entry in files if not prefix or entry.key.startswith(f"{prefix}/"))
        return sorted(inside, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        """Remove a file; one that is not there is already removed."""
        if not any(entry.key == key for entry in self.list()):
            return
        with self._translated(key):
            self._api.delete_file(key, self._repo, commit_message=f"Remove {key}")

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        from huggingface_hub import errors

        try:
            yield
        except (errors.EntryNotFoundError, errors.RevisionNotFoundError) as error:
            raise Missing(self.url, key, "there is no such file") from error
        except errors.RepositoryNotFoundError as error:
            why = "there is no such repository, or your token may not see it; try: hf auth login"
            raise Missing(self.url, key, why) from error
        except errors.HfHubHTTPError as error:
            if error.response is not None and error.response.status_code in (401, 403):
                why = f"access denied; does your token have write access? ({first_line(error)})"
                raise AccessDenied(self.url, key, why) from error
            raise BucketError(self.url, key, first_line(error)) from error
        except BucketError:
            raise
        except (ValueError, OSError, RuntimeError) as error:
            # RuntimeError is how the library reports an upload that failed.
            raise BucketError(self.url, key, first_line(error.__cause__ or error)) from error
        except Exception as error:
            if type(error).__module__.startswith("httpx"):
                why = f"the Hub does not answer: {first_line(error)}"
                raise BucketError(self.url, key, why) from error
            raise


def _library() -> Any:
    try:
        import huggingface_hub
        from huggingface_hub.utils.tqdm import disable_progress_bars
    except ImportError as missing:
        raise NotPossible(
            SCHEME, "", 'the Hub needs huggingface_hub; install it: pip install "folkmoot[hf]"'
        ) from missing
    disable_progress_bars()  # they would be drawn over a live view
    return huggingface_hub
