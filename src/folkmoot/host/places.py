"""Places that somebody agreed to: folders and URLs, and what lies in them."""

import os


def is_url(name: str) -> bool:
    return ":" in name.partition("/")[0]


def below(name: str, place: str) -> str | None:
    """What `name` adds to `place`, "" when it is the same; None when it is not in there.

    Names are compared as they are spelt. A URL that is not the place itself may have no `..`, `%`,
    `?` or `#`: what a store makes of them is not known here.
    """
    if is_url(name) != is_url(place):
        return None
    if is_url(name):
        place = place.rstrip("/")
        spelt = {".", ".."} & set(name.split("/")) or set(name) & set("%?#\\")
    else:
        name, place, spelt = os.path.abspath(name), os.path.abspath(place).rstrip("/"), set()
    if name.rstrip("/") == place:
        return ""
    return name[len(place) :] if name.startswith(f"{place}/") and not spelt else None
