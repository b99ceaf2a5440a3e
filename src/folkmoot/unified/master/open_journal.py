"""Where a job's journal is: in its folder, or at the url of a store or of a bucket."""

from folkmoot.host.durable import Log
from folkmoot.host.journal import Journal
from folkmoot.unified.master.home import Home

#: Buckets that let exactly one writer create an object.
BUCKETS = ("s3", "gs", "az", "file")


def open_journal(home: Home, take_over: bool = False) -> Log:
    """The journal of the job in this folder, claimed for whoever opens it."""
    url = home.settings().state
    if not url:
        return Journal(home.journal, take_over=take_over)
    if _kind(url) in BUCKETS:
        from folkmoot.unified.master.bucket_journal import BucketJournal

        return BucketJournal(url, home.spec().name)
    from folkmoot.unified.master.store_journal import StoreJournal

    return StoreJournal(url, home.spec().name)


def check_url(url: str) -> None:
    """ValueError says what is wrong with the url of a journal."""
    from folkmoot.authority.store.kv.open import KINDS, parse_url

    if _kind(url) in KINDS:
        parse_url(url)
    elif _kind(url) not in BUCKETS:
        known = ", ".join(f"{kind}://" for kind in (*KINDS, *BUCKETS))
        named = f"{_kind(url)}://…" if _kind(url) else url  # what follows may hold a password
        raise ValueError(
            f"{named!r} can hold no job's state: name a store or a bucket with one of {known}"
        )


def _kind(url: str) -> str:
    kind, separator, _ = url.partition("://")
    return kind if separator else ""
