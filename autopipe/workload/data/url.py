"""URLs as text: recognising, checking and showing them without secrets. Nothing here opens one: see `remote`."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from autopipe.errors import DataError
from autopipe.workload import plain_code

_URL = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]+)://")
_CHAIN = re.compile(r"^[a-z0-9+.-]+::")
_FLATTENED = re.compile(r"^(abfss?|adl|az|ftp|gc?s|hdfs|https?|memory|oci|s3a?|sftp|webhdfs):/[^/]")
_USER = re.compile(r"^([a-z0-9+.-]+://)([^/@]*)@", re.IGNORECASE)
_QUERY = re.compile(r"\?[^\s'\"`>]*")
_SECRET_USER = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]*@|(?<=http://)[^/@\s]+@|(?<=https://)[^/@\s]+@")


def is_url(place: str | bytes | os.PathLike[str]) -> bool:
    """Return True if a place is a URL, and not a path."""
    return _URL.match(os.fsencode(place)) is not None


def scheme(url: str | bytes) -> str:
    """Return the scheme of a URL: "s3", "gs", "https", ..."""
    found = _URL.match(os.fsencode(url))
    assert found is not None
    return found[1].decode().lower()


def located(place: str | os.PathLike[str]) -> str:
    """Return a user's place in its canonical form: a URL without its last slashes, or a path made absolute. Raise
    DataError if it is a URL with a password, a chain of URLs, or a URL converted to a Path.
    """
    text = os.fspath(place)
    if _CHAIN.match(text) and "://" in text:
        raise DataError(
            f"Chains of URLs, such as `{_CHAIN.findall(text)[0]}...`, are not supported.", hint="Pass one plain URL."
        )
    require_text(place)
    if not is_url(text):
        return plain_code.located(text)
    if scheme(text) in ("file", "local"):
        return unquote(text.partition("://")[2]) or "/"
    require_no_password(text)
    return text.rstrip("/")


def require_text(place: str | os.PathLike[str]) -> None:
    """Raise DataError for a URL that was converted to a Path, and thereby lost a slash."""
    if not isinstance(place, str) and _FLATTENED.match(os.fspath(place)):
        raise DataError(f"URLs must be passed as text, but got {place!r}: a Path has no `//`.", hint="Pass a string.")


def require_no_password(url: str) -> None:
    """Refuse a URL that holds a password, or, of a web server, a user.

    Raises:
        DataError: the message does not repeat the secret.
    """
    user = _USER.match(url)
    if user is not None and (":" in user[2] or user[1].lower().startswith("http")):
        raise DataError(
            f"A URL must not hold a user name or password, but the one of `{shown(url)}` does.",
            hint="Put credentials in environment variables or in the configuration file of the service that stores the "
            "data, such as ~/.aws/credentials.",
        )


def shown(place: str | bytes) -> str:
    """Return a place for people: a URL without its user and its query, which holds the signature of a signed one."""
    text = os.fsdecode(place)
    return scrubbed(text) if is_url(place) else text


def scrubbed(text: str) -> str:
    """Return a text whose URLs have no users and queries."""
    return _SECRET_USER.sub("", _QUERY.sub("?…", text))
