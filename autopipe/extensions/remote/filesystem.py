"""The file system behind a URL, through fsspec: one instance a process, and every failure as an error of ours.

Credentials are fsspec's business, and so are retries. Errors of fsspec are neither chained to ours nor logged, because
a signed URL may be in them; the text is shown without users and queries.
"""

from __future__ import annotations

import functools
import http
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from autopipe import again
from autopipe.errors import AutopipeError, BadSampleError, DataError, MissingExtraError, extra_module, told
from autopipe.workload.data.paths import scheme, scrubbed, shown

_CONNECTIONS = 128  # of S3; botocore's own 10 would keep 64 readers waiting for each other
_TEXT_AT_MOST = 200
_S3 = ("s3", "s3a")
_PACKAGES = {"http": "aiohttp", "https": "aiohttp", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
_HINT_DENIED = (
    "Credentials come from where fsspec looks for them, such as the environment, ~/.aws or ~/.config/fsspec: "
    "autopipe/extensions/remote/README.md lists the places."
)

T = TypeVar("T")

_SYSTEMS: dict[tuple[int, str], Any] = {}  # the asynchronous ones, by process and server: a forked process has its own


def opened(url: str | bytes) -> Any:
    """Return this process's fsspec file system for a URL: an asynchronous one is shared by all threads, others belong
    to the calling one. Raise MissingExtraError if a package is missing, DataError for an unknown scheme or a failure.
    """
    text = os.fsdecode(url)
    kind = _implementation(scheme(text))
    server, process = "/".join(text.split("/", 3)[:3]) + "/", os.getpid()
    if not getattr(kind, "async_impl", False):
        return _made(server)
    if (process, server) not in _SYSTEMS:
        with _lock(process):
            if (process, server) not in _SYSTEMS:  # by now
                from fsspec import asyn

                # Its event loop may have stayed behind in a fork, as it notices itself since 2026.
                if (thread := asyn.iothread[0]) is not None and not thread.is_alive():
                    asyn.reset_lock()
                system = _made(server)
                if scheme(server) in _S3:
                    system.connect()  # else, before s3fs 2026, each of many first reads would look for credentials
                _SYSTEMS[process, server] = system
    return _SYSTEMS[process, server]


def read(url: str | bytes, start: int | None = None, end: int | None = None) -> bytes:
    """Return the content of an object, or its bytes from `start` to `end`. Raise BadSampleError if it does not exist,
    is empty, or ends before `start`, and DataError if access is denied, or the connection is lost; not the object's
    fault.
    """
    try:
        content: bytes = opened(url).cat_file(os.fsdecode(url), start=start, end=end)
    except Exception as error:  # noqa: BLE001  # each file system raises its own
        if not _is_behind_the_end(error):
            raise failure(url, error) from None
        content = b""
    if not content:
        raise BadSampleError(f"`{shown(url)}` {f'ends before byte {start}' if start else 'is empty (0 bytes)'}.")
    if start is not None and end is not None and len(content) > end - start:
        raise DataError(
            f"The server of `{shown(url)}` cannot send a part of a file, which is how it is read.",
            hint="Copy the file to a disk, or to a server that answers to `Range`.",
        )
    return content


def attempt(url: str | bytes, call: Callable[[Any], T], done: str = "read") -> T:
    """Call `call` with the file system of a URL; raises DataError ("could not be" `done`), or BadSampleError."""
    try:
        return call(opened(url))
    except Exception as error:  # noqa: BLE001  # each file system raises its own
        raise failure(url, error, done) from None


def failure(url: str | bytes, error: Exception, done: str = "read") -> AutopipeError:
    """Return the error for an exception of a file system about a URL."""
    if isinstance(error, AutopipeError):
        return error
    place, cause = f"`{shown(url)}`", error.__cause__
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and _is_of_the_web(cause):
        error = cause  # fsspec says so of whatever a web server answers, or does not, when it is asked about a file
    if isinstance(error, FileNotFoundError) and done == "read":
        return BadSampleError(f"{place} does not exist.")
    if isinstance(error, PermissionError) or getattr(error, "status", None) in (401, 403):
        return DataError(f"Access to {place} is denied: {_text(error)}", hint=_HINT_DENIED)
    if type(error).__name__ in ("NoCredentialsError", "DefaultCredentialsError", "CredentialRetrievalError"):
        return DataError(f"Access to {place} needs credentials: {_text(error)}", hint=_HINT_DENIED)
    return DataError(
        f"{place} cannot be {done}: {_text(error)}", hint="Check the address and the network, and try again."
    )


def _is_of_the_web(error: Exception) -> bool:
    """Return True for a failure of a request to a web server, but not for its answer that there is no such file."""
    gone = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE)
    is_of_aiohttp = type(error).__module__.partition(".")[0] == "aiohttp"
    return isinstance(error, TimeoutError) or (is_of_aiohttp and getattr(error, "status", None) not in gone)


def _is_behind_the_end(error: Exception) -> bool:
    """Return True if a server answered that an object has no such bytes, as S3 does for any bytes of an empty one."""
    response = getattr(error.__cause__, "response", None)  # of botocore, from which s3fs makes its own
    told = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, Mapping) else None
    named = (getattr(error, name, None) for name in ("status", "status_code", "code"))  # aiohttp warns of its `code`
    status = next((each for each in named if each is not None), told)
    return bool(status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)


def _text(error: Exception) -> str:
    text = scrubbed(f"{told(error)}".replace("\n", " ")).rstrip(": .")
    return (text if len(text) <= _TEXT_AT_MOST else f"{text[:_TEXT_AT_MOST]}…") + "."


@functools.cache
def _lock(process: int) -> threading.Lock:
    """Return the lock of a process: that of a forked one is free."""
    return threading.Lock()


def _made(server: str) -> Any:
    """Return a file system; the user's own settings for fsspec take precedence."""
    import fsspec

    options, protocol = dict[str, Any](), scheme(server)
    if protocol in _S3:
        own = {**fsspec.config.conf.get("s3", {}), **fsspec.config.conf.get(protocol, {})}
        config = own.get("config_kwargs") or {}
        # With more than one request an object, s3fs asks for the size before it reads: twice the latency.
        options = {"max_concurrency": 1, "config_kwargs": {"max_pool_connections": _CONNECTIONS, **config}}
    return fsspec.core.url_to_fs(server, **options)[0]


@functools.cache
def _implementation(protocol: str) -> type[Any]:
    fsspec, names = extra_module("remote", "fsspec"), extra_module("remote", "fsspec.registry")
    try:
        kind: type[Any] = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        known = names.known_implementations.get(protocol, {})
        package = _PACKAGES.get(protocol) or str(known.get("class", protocol)).partition(".")[0]
        raise MissingExtraError(
            f"`{protocol}://` needs a package that is not installed: {error}.", hint=f"Run: {again.installing(package)}"
        ) from None
    except ValueError:
        raise DataError(
            f"`{protocol}://` is no kind of URL that fsspec knows.",
            hint="s3://, gs://, abfs://, https://, sftp:// and others are; python -c "
            '"import fsspec; print(fsspec.available_protocols())" lists them.',
        ) from None
    return kind
