"""A store's url is understood, or refused with what to write instead."""

import pytest

from folkmoot.authority.store.kv.open import open_store, parse_url


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("localhost:1234", "begins with one of tcp://, etcd://, etcds://, memory://"),
        ("redis://localhost:1", "names no store"),
        ("tcp://localhost", "not an address; expected tcp://host:port"),
        ("tcp://:99", "not an address"),
        ("tcp://host:70000", "not an address"),
        ("tcp://a:1,b:2", "one server"),
        ("etcd://a:1,b", "'b' is not an address; expected etcd://host:port"),
        ("etcd://a:1?ca=x", "no option 'ca'"),
        ("etcds://a:1?cert=x", "go together"),
        ("tcp://a:1?retries=4", "no option 'retries'; known: timeout"),
        ("tcp://a:1?timeout=soon", "number of seconds"),
        ("tcp://a:1?timeout=-1", "number of seconds"),
        ("tcp://a:1?timeout=nan", "number of seconds"),
    ],
)
def test_a_bad_url_is_explained(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        open_store(url)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ValueError) as error:
        open_store("etdc://me:secret@host:1")
    assert "secret" not in str(error.value)


def test_a_good_url_is_read() -> None:
    assert parse_url("tcp://[::1]:99?timeout=2.5").addresses == (("::1", 99),)
    assert parse_url("tcp://host:99/?timeout=2.5").timeout == 2.5
    place = parse_url("etcds://me:p%40ss@a:1,b:2?ca=ca.pem")
    assert place.addresses == (("a", 1), ("b", 2))
    assert (place.user, place.password) == ("me", "p@ss")
    assert parse_url("memory://a name").name == "a name"
