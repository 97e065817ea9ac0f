"""File systems: where a URL becomes a file system, and a store's refusals become a sentence.

A store's hiccups are tried again here and nowhere else, so that attempts are bounded and counted:
the retries of s3fs and botocore, which nobody sees, are off.
"""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import fsspec
import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem

from sparc_dist.errors import UserError
from sparc_dist.storage.urls import is_chain, is_remote, is_web, without_secrets

T = TypeVar("T")
ATTEMPTS = 8
WEB_ATTEMPTS = 5  # dead links are common, and each is one image's affair
LONGEST_PAUSE = 10.0
#: Seconds after which a store that says nothing counts as not answering.
TIMEOUT = "SPARC_STORAGE_TIMEOUT"
#: What workers of a running cluster must know of the store; none of it is secret.
FORWARDED = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    TIMEOUT,
)
#: Who we are is in doubt: true of every file, not of this one.
_CREDENTIALS = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "AuthorizationHeaderMalformed",
}
#: What S3 answers when it wants to be asked again, beside the 5xx.
_AGAIN = {
    "SlowDown",
    "Throttling",
    "RequestTimeout",
    "OperationAborted",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
}
_RIGHTS = {
    "reading": "s3:GetObject",
    "listing": "s3:ListBucket",
    "writing": "s3:PutObject",
    "deleting": "s3:DeleteObject",
}


class StorageError(UserError):
    """The store does not answer, or does not know us: the fault of no single file."""


class NoBucket(StorageError):
    """There is no such bucket."""


class BadUrl(StorageError):
    """No store can have a file of that name."""


class Refused(StorageError, PermissionError):
    """The store knows us and will not do this with this file."""


class _Count:
    """How often this process asked a store again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.retries = 0

    def add(self) -> None:
        with self._lock:
            self.retries += 1


_count = _Count()


def retries() -> int:
    """How many requests this process has had to repeat since it started."""
    return _count.retries


def resolve(url: str) -> tuple[Any, str]:
    """The file system of a URL, with its options, and the path in it.

    s3fs is given them here, and pyarrow is given files that s3fs has opened: so both see the same
    endpoint, region and credentials. A protocol that fsspec cannot open is pyarrow's.
    """
    if not is_remote(url):
        return LocalFileSystem(), url
    if is_chain(url):
        return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
    protocol, _, rest = url.partition("://")
    try:
        fs = fsspec.filesystem(protocol, **_options(protocol))
    except (ImportError, ValueError):
        host, _, path = rest.partition("/")
        fs, base = _arrow_filesystem(protocol, host)
        return fs, "/".join(part for part in (base.rstrip("/"), path) if part)
    fs.retries = 1
    return fs, fs._strip_protocol(url)


def _options(protocol: str) -> dict[str, Any]:
    """How long to wait; and of S3, what AWS's own tools take from the environment."""
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
        raise UserError("AWS_ENDPOINT_URL carries a user name or key; take it out.")
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    config: dict[str, Any] = {
        "connect_timeout": min(10.0, seconds),
        "read_timeout": seconds,
        "retries": {"total_max_attempts": 1},
    }
    if endpoint:
        # Servers that are not Amazon's know no checksums beside those of the protocol.
        for name in ("request_checksum_calculation", "response_checksum_validation"):
            config[name] = env.get(f"AWS_{name.upper()}", "when_required").lower()
    return {
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": region} if region else {},
        "config_kwargs": config,
        "use_listings_cache": False,  # what another worker wrote meanwhile must be seen
        # Of a small file s3fs would else ask the size first, and list where there is none; what
        # is done at once is done on many workers.
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
    """pyarrow's own file systems, such as gs:// and hdfs://."""
    try:
        fs, base = pa.fs.FileSystem.from_uri(f"{protocol}://{host}")
    except (pa.ArrowException, OSError):
        raise UserError(
            f"No file system for {protocol}:// is known here; check the URL, or install the "
            "fsspec package of that store."
        ) from None
    return ArrowFSWrapper(fs), base


def with_retries(url: str, doing: str, work: Callable[[Any, str], T]) -> T:
    """``work(file system, path)``, tried again while the store's trouble may pass."""
    fs, path = resolve(url)
    if isinstance(fs, LocalFileSystem):
        return work(fs, path)
    attempts = WEB_ATTEMPTS if is_web(url) else ATTEMPTS
    for attempt in range(attempts):
        try:
            return work(fs, path)
        except Exception as error:
            if not _may_pass(error):
                raise _told(url, doing, _in_full(error, fs, path)) from None
            reason = _code(error) or type(error).__name__
        if attempt + 1 < attempts:
            _count.add()
            # Not all workers at the same moment, or the store is overrun again.
            time.sleep(min(LONGEST_PAUSE, 0.2 * 2**attempt) * random.uniform(0.5, 1.0))
    raise StorageError(
        f"{_place(url)} did not answer as it should in {attempts} attempts at {doing} "
        f"{without_secrets(url)} "
        f"({reason}); start the same command again when it does, nothing is lost."
    )


def _may_pass(error: BaseException) -> bool:
    """Whether to ask again may help: trouble on the way or in the store, not with what we ask."""
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
        return bool(status >= 500 or status == 429) or _code(error) in _AGAIN
    if isinstance(error, aiohttp.ClientResponseError):
        return bool(error.status >= 500 or error.status == 429)
    passing = (
        boto.HTTPClientError,
        boto.ConnectionError,
        boto.IncompleteReadError,
        boto.FlexibleChecksumError,
        boto.CredentialRetrievalError,  # a machine's role is asked for over the network too
        boto.MetadataRetrievalError,
        ResponseParserError,
        aiohttp.ClientError,
    )
    return isinstance(error, (OSError, http.client.HTTPException, *passing))


def _in_full(error: Exception, fs: Any, path: str) -> Exception:
    """A refusal with its reason: S3's answer to the question for a file's size has none."""
    if _code(error) not in ("400", "403"):
        return error
    try:
        fs.cat_file(path, start=0, end=1)
    except Exception as full:
        return full
    return error


def _told(url: str, doing: str, error: Exception) -> Exception:
    """The error in a sentence, where it is one that a user can put right."""
    import aiohttp
    from botocore import exceptions as boto

    code, place = _code(error), _place(url)
    if code in _CREDENTIALS:
        return StorageError(
            f"{place} does not accept the credentials ({code}); check AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, the profile or the role."
        )
    if code == "NoSuchBucket":
        return NoBucket(f"There is no bucket {place}; create it, or correct the URL.")
    if isinstance(error, boto.ParamValidationError) or code == "InvalidBucketName":
        return BadUrl(f"{without_secrets(url)} cannot name a file; correct the URL.")
    if isinstance(error, boto.NoCredentialsError):
        return StorageError(
            f"There are no credentials for {place}; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile (AWS_PROFILE) or a role."
        )
    if isinstance(error, boto.BotoCoreError):
        return StorageError(f"{place} cannot be used: {error}")
    if isinstance(error, aiohttp.ClientResponseError):
        # Not its own words: they repeat the whole URL, which may be signed.
        if error.status in (404, 410):
            return FileNotFoundError(f"{without_secrets(url)}: {error.status}")
        kind = Refused if error.status in (401, 403) else StorageError
        told = without_secrets(url)
        return kind(f"{doing.capitalize()} {told} was refused ({error.status}); correct the URL.")
    if isinstance(error, PermissionError):
        why = code or "AccessDenied"
        remedy = f"allow {_RIGHTS[doing]} there, or correct the URL"
        return Refused(
            f"{doing.capitalize()} {without_secrets(url)} was refused ({why}); {remedy}."
        )
    return error


def _code(error: BaseException) -> str | None:
    """The store's own word for what went wrong."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
    return str(response["Error"].get("Code")) if isinstance(response, dict) else None


def _place(url: str) -> str:
    """Of ``s3://bucket/key`` the bucket."""
    protocol, _, rest = without_secrets(url).partition("://")
    return f"{protocol}://{rest.partition('/')[0]}"
