"""File systems: turns a URL into a file system, and a store's errors into messages for the user.

Transient errors are retried here and nowhere else, so that attempts are bounded and counted. The
hidden retries of s3fs and botocore are off.
"""

from __future__ import annotations

import errno
import http.client
import os
import random
import stat
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError
from sparc_dist.storage.urls import (
    PROTOCOLS,
    is_allowed,
    is_chain,
    is_remote,
    is_web,
    without_secrets,
)

T = TypeVar("T")
ATTEMPTS = 8
WEB_ATTEMPTS = 5  # dead links are common, and each affects one image only
LONGEST_PAUSE = 10.0
#: How many seconds a store is waited for that has answered before and cannot be reached now.
OUTAGE = 90.0
#: The variable that sets after how many seconds a silent store counts as not answering.
TIMEOUT = "SPARC_STORAGE_TIMEOUT"
#: The settings that workers of a running cluster need for the store; none of them is secret.
FORWARDED = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    TIMEOUT,
)
#: The credentials were rejected: this affects every file, not just one.
_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed",
}
#: S3 errors that go away with a retry, besides the 5xx.
_TRANSIENT = {
    "SlowDown",
    "Throttling",
    "RequestTimeout",
    "OperationAborted",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "ConditionalRequestConflict",
}
#: What callers handle: the file is missing, or is of another kind.
_EXPECTED = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_RIGHTS = {
    "reading": "s3:GetObject",
    "listing": "s3:ListBucket",
    "writing": "s3:PutObject",
    "deleting": "s3:DeleteObject",
}


class StorageError(UserError):
    """The store does not answer or rejects the credentials: no single file is at fault."""


class NoBucket(StorageError):
    """The bucket does not exist."""


class BadUrl(StorageError):
    """The URL does not name a file that a store could have."""


class BadFile(UserError):
    """A file is not read: it is too large, or no regular file. reason: without its name."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"{without_secrets(self.url)} {self.reason}; name another file."


class Refused(StorageError, PermissionError):
    """The store accepts the credentials but denies access to this file."""


class _RetryCounter:
    """Counts how often this process repeated a request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.retries = 0

    def add(self) -> None:
        with self._lock:
            self.retries += 1


_retry_counter = _RetryCounter()


def retries() -> int:
    """Returns how many requests this process has repeated since it started."""
    return _retry_counter.retries


def resolve(url: str) -> tuple[Any, str]:
    """Returns the file system of a URL, with its options, and the path in it.

    pyarrow reads files that s3fs has opened, so both use the same endpoint, region and
    credentials. Protocols that fsspec cannot open are left to pyarrow.
    """
    if not is_remote(url):
        return LocalFileSystem(), url
    if not is_allowed(url):
        raise BadUrl(
            f"{without_secrets(url)} is not opened: its protocol is none of "
            f"{', '.join(PROTOCOLS)}, or zip or tar in one of them; correct the URL."
        )
    if is_chain(url):
        inside, _, archive = url.rpartition("::")
        if not is_remote(archive):
            regular_size(archive)
            # Otherwise a path that is named like a protocol would count as one.
            archive = f"file://{os.path.abspath(archive)}"
        return fsspec.core.url_to_fs(f"{inside}::{archive}")  # type: ignore[no-any-return]
    protocol, _, rest = url.partition("://")
    try:
        fs = fsspec.filesystem(protocol, **_options(protocol))
    except (ImportError, ValueError):
        host, _, path = rest.partition("/")
        fs, base = _arrow_filesystem(protocol, host)
        return fs, "/".join(part for part in (base.rstrip("/"), path) if part)
    fs.retries = 1
    return fs, fs._strip_protocol(url)


def regular_size(path: str) -> int:
    """Returns the size of a local file; raises BadFile for pipes, devices and sockets.

    To open a pipe waits for somebody who writes; to read a device may never end.
    """
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(path, "is a pipe, device or socket, not a regular file")
    return found.st_size


def _options(protocol: str) -> dict[str, Any]:
    """Returns the timeouts, and for S3 what AWS's own tools take from the environment."""
    seconds = _timeout()
    if protocol in ("http", "https"):
        import aiohttp

        limits = aiohttp.ClientTimeout(None, sock_connect=min(10.0, seconds), sock_read=seconds)
        return {"client_kwargs": {"timeout": limits}}
    if protocol not in ("s3", "s3a"):
        return {}
    env = os.environ
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if "@" in (endpoint or ""):
        raise UserError("AWS_ENDPOINT_URL contains a user name or key; remove it.")
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {
        "connect_timeout": min(10.0, seconds),
        "read_timeout": seconds,
        "retries": {"total_max_attempts": 1},
    }
    if endpoint:
        # Servers other than Amazon's support only the checksums of the protocol.
        for name in ("request_checksum_calculation", "response_checksum_validation"):
            config[name] = env.get(f"AWS_{name.upper()}", "when_required").lower()
    return {
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": region} if region else {},
        "config_kwargs": config,
        "use_listings_cache": False,  # files that other workers write must be visible
        # Otherwise s3fs requests the size of a small file first, and lists if there is no such
        # file. Parallelism comes from many workers.
        "max_concurrency": 1,
    }


def _timeout() -> float:
    text = os.environ.get(TIMEOUT, "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise UserError(f"{TIMEOUT} is {text!r}; set it to a number of seconds, or unset it.")
    return seconds


@lru_cache(maxsize=64)
def _arrow_filesystem(protocol: str, host: str) -> tuple[Any, str]:
    """Returns a file system of pyarrow, such as gs:// or hdfs://, and its base path."""
    try:
        fs, base = pa.fs.FileSystem.from_uri(f"{protocol}://{host}")
    except (pa.ArrowException, OSError):
        raise UserError(
            f"No file system for {protocol}:// is installed; check the URL, or install the "
            "fsspec package of that store."
        ) from None
    return ArrowFSWrapper(fs), base


def with_retries(url: str, action: str, work: Callable[[Any, str], T]) -> T:
    """Returns ``work(file system, path)``; transient errors of the store are retried."""
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return work(fs, path)
    least, bucket = WEB_ATTEMPTS if is_web(url) else ATTEMPTS, _bucket(url)
    patient_until = time.monotonic() + (OUTAGE if bucket in _reached else 0)
    for attempt in count():
        try:
            found = work(fs, path)
            if not is_web(url):
                _reached.add(bucket)
            return found
        except Exception as error:
            if not _is_transient(error):
                raise _as_user_error(url, action, _with_reason(error, fs, path)) from None
            reason = error_code(error) or type(error).__name__
            waits = _is_unreachable(error) and time.monotonic() < patient_until
        if attempt + 1 >= least and not waits:
            break
        _retry_counter.add()
        # Random, so that not all workers overload the store again at the same moment.
        time.sleep(min(LONGEST_PAUSE, 0.2 * 2 ** min(attempt, 9)) * random.uniform(0.5, 1.0))
    raise StorageError(
        f"{bucket} did not answer as it should in {attempt + 1} attempts at {action} "
        f"{without_secrets(url)} ({reason}); run the same command again later to resume."
    )


#: Buckets that this process has read from or written to.
_reached: set[str] = set()


def _is_unreachable(error: BaseException) -> bool:
    """Whether the network failed, not the store."""
    from botocore import exceptions as boto

    return isinstance(error, boto.HTTPClientError | boto.ConnectionError | ConnectionError)


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may help: the network or the store failed, and the request is valid."""
    import aiohttp
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    if isinstance(error, FileNotFoundError | PermissionError | FileExistsError):
        return False
    if isinstance(error, IsADirectoryError | NotADirectoryError | UserError):
        return False
    answer = error if isinstance(error, boto.ClientError) else error.__cause__
    if isinstance(answer, boto.ClientError):
        status = answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return bool(status >= 500 or status == 429) or error_code(error) in _TRANSIENT
    if isinstance(error, aiohttp.ClientResponseError):
        return bool(error.status >= 500 or error.status == 429)
    network_errors = (
        boto.HTTPClientError,
        boto.ConnectionError,
        boto.IncompleteReadError,
        boto.FlexibleChecksumError,
        boto.CredentialRetrievalError,  # a machine's role is also fetched over the network
        boto.MetadataRetrievalError,
        ResponseParserError,
        aiohttp.ClientError,
    )
    return isinstance(error, (OSError, http.client.HTTPException, *network_errors))


def _with_reason(error: Exception, fs: Any, path: str) -> Exception:
    """Returns a refusal with its reason, which S3 omits when asked for the size of a file."""
    if error_code(error) not in ("400", "403"):
        return error
    try:
        fs.cat_file(path, start=0, end=1)
    except Exception as full:
        return full
    return error


def _as_user_error(url: str, action: str, error: Exception) -> Exception:
    """Returns an error that says what to do, if the user can fix it, else the error itself."""
    import aiohttp
    from botocore import exceptions as boto

    code, bucket, file = error_code(error), _bucket(url), without_secrets(url)
    if code in _CREDENTIALS:
        return StorageError(
            f"{bucket} does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, the profile or the role."
        )
    if code == "NoSuchBucket":
        return NoBucket(f"There is no bucket {bucket}; create it, or correct the URL.")
    if isinstance(error, boto.ParamValidationError) or code == "InvalidBucketName":
        return BadUrl(f"{file} does not name a file; correct the URL.")
    if isinstance(error, boto.NoCredentialsError):
        return StorageError(
            f"There are no credentials for {bucket}; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE) or a role."
        )
    if isinstance(error, boto.BotoCoreError):
        return StorageError(f"{bucket} cannot be used: {error}")
    if isinstance(error, aiohttp.ClientResponseError):
        # The error's own text repeats the whole URL, which may be signed.
        if error.status in (404, 410):
            return FileNotFoundError(f"{file}: {error.status}")
        kind = Refused if error.status in (401, 403) else StorageError
        return kind(f"{action.capitalize()} {file} was refused ({error.status}); correct the URL.")
    if isinstance(error, PermissionError):
        return Refused(
            f"{action.capitalize()} {file} was refused ({code or 'AccessDenied'}); allow "
            f"{_RIGHTS[action]} there, or correct the URL."
        )
    if isinstance(error, FileNotFoundError) and action != "writing":
        return FileNotFoundError(errno.ENOENT, "there is no such file", file)
    if code is not None and (action == "writing" or not isinstance(error, _EXPECTED)):
        return StorageError(
            f"{action.capitalize()} {file} failed ({code}); run the same command again, and check "
            "the store if this happens again."
        )
    return error


def error_code(error: BaseException) -> str | None:
    """Returns the error code of the store, if there is one."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    return str(response["Error"].get("Code")) if isinstance(response, dict) else None


def _bucket(url: str) -> str:
    """Returns ``s3://bucket`` for ``s3://bucket/key``."""
    protocol, _, rest = without_secrets(url).partition("://")
    return f"{protocol}://{rest.partition('/')[0]}"
