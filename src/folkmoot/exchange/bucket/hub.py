"""A checkpoint's folder to and from the Hugging Face Hub.

`push` makes one commit of the whole folder: on the Hub, too, a checkpoint is there or not.
`pull` brings a revision here; check it against its manifest before use (`learning.checkpoints`).
The token comes from `hf auth login` or HF_TOKEN, the way every Hugging Face tool finds it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from folkmoot.exchange.bucket.errors import (
    AccessDenied,
    BucketError,
    Missing,
    NotPossible,
    first_line,
)


def push(folder: Path, repo: str, message: str, *, private: bool = True, endpoint: str = "") -> str:
    """Upload every file of the folder in one commit; creates the repository if need be."""
    hub = _library()
    if not folder.is_dir():
        raise NotPossible(f"hf://{repo}", "", f"{folder} is not a folder")
    with _translated(repo):
        api = hub.HfApi(endpoint=endpoint or None)
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    return str(commit.oid)


def pull(repo: str, into: Path, revision: str = "main", *, endpoint: str = "") -> Path:
    """Download a revision into a folder; files already there and unchanged stay."""
    hub = _library()
    with _translated(repo):
        # Asked first: snapshot_download alone takes old files for good when the Hub is down.
        found = hub.HfApi(endpoint=endpoint or None).model_info(repo, revision=revision)
        hub.snapshot_download(
            repo, revision=found.sha, local_dir=into, endpoint=endpoint or None, max_workers=4
        )
    return into


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as missing:
        raise NotPossible(
            "hf://", "", 'the Hub needs huggingface_hub; install it: pip install "folkmoot[hf]"'
        ) from missing
    return huggingface_hub


@contextmanager
def _translated(repo: str) -> Iterator[None]:
    from huggingface_hub import errors

    url = f"hf://{repo}"
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise Missing(url, "", "there is no such revision") from error
    except errors.RepositoryNotFoundError as error:
        why = "there is no such repository, or your token may not see it; try: hf auth login"
        raise Missing(url, "", why) from error
    except errors.HfHubHTTPError as error:
        if error.response is not None and error.response.status_code in (401, 403):
            why = f"access denied; does your token have write access? ({first_line(error)})"
            raise AccessDenied(url, "", why) from error
        raise BucketError(url, "", first_line(error)) from error
    except (ValueError, OSError, RuntimeError) as error:
        # RuntimeError is how the library reports an upload that failed.
        raise BucketError(url, "", first_line(error.__cause__ or error)) from error
    except Exception as error:
        if type(error).__module__.startswith("httpx"):
            raise BucketError(url, "", f"the Hub does not answer: {first_line(error)}") from error
        raise
