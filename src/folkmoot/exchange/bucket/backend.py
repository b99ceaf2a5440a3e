"""Which store a bucket's URL means, and how patiently it is asked."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore import exceptions
from obstore.store import HTTPStore, LocalStore, MemoryStore, from_url

from folkmoot.exchange.bucket.errors import NotPossible, first_line


def folder_of(url: str) -> Path | None:
    """The folder that a bucket's URL names, or None when it is another kind of bucket."""
    scheme = urlsplit(url).scheme
    if scheme not in ("", "file"):
        return None
    return Path(unquote(urlsplit(url).path) if scheme else url).absolute()


def open_store(url: str, folder: Path | None, options: Any, patience: float) -> Any:
    if folder is not None:
        return LocalStore(folder, mkdir=True)
    if urlsplit(url).scheme == "memory":
        return MemoryStore()
    endpoint = options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or url
    # A whole transfer may take long; a stalled one is noticed by its silence.
    client: Any = {
        "connect_timeout": timedelta(seconds=min(5.0, patience)),
        "read_timeout": timedelta(seconds=patience),
        "timeout": timedelta(days=1),
    }
    # Who writes an endpoint without TLS means it; obstore would want it said twice.
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    # What TLS protects need not be hashed for the request's signature as well, on both sides.
    plain = any(str(value).startswith("http://") for value in (endpoint, *options.values()))
    if urlsplit(url).scheme == "s3" and not plain:
        said = any("unsigned_payload" in name.lower() for name in options)
        options |= {} if said else {"unsigned_payload": "true"}
    retry: Any = {
        "max_retries": 100,
        "retry_timeout": timedelta(seconds=patience),
        "backoff": {"max_backoff": timedelta(seconds=min(5.0, patience))},
    }
    try:
        if urlsplit(url).scheme in ("http", "https"):
            return HTTPStore(url, client_options=client, retry_config=retry)
        return from_url(url, config=options, client_options=client, retry_config=retry)
    except (exceptions.BaseError, ValueError) as error:
        raise NotPossible(url, "", f"not the URL of a bucket: {first_line(error)}") from error
