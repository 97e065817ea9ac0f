"""Files on local disks and in object stores behind the same few functions.

Belongs here: URLs, file systems with their retries, files that appear whole or not at all, Parquet.
Does not: what a run's files mean (``runs``). Uses: ``errors``.
"""

from sparc_dist.storage.files import (
    atomic_file,
    check_access,
    delete,
    exists,
    is_folder,
    matches,
    open_file,
    read_bytes,
    read_if_exists,
    read_json,
    read_json_if_exists,
    read_lines,
    sha256,
    write_bytes,
    write_json,
)
from sparc_dist.storage.filesystems import (
    FORWARDED,
    BadUrl,
    NoBucket,
    Refused,
    StorageError,
    resolve,
    retries,
    with_retries,
)
from sparc_dist.storage.listing import PAGE, files_below
from sparc_dist.storage.tables import (
    decoded,
    read_row_group,
    read_table,
    row_group_sizes,
    row_groups,
    write_table,
)
from sparc_dist.storage.temporary import temporary_folder
from sparc_dist.storage.urls import (
    absolute,
    byte_range,
    is_chain,
    is_remote,
    is_web,
    join,
    parent,
    without_secrets,
)

__all__ = [
    "FORWARDED",
    "PAGE",
    "BadUrl",
    "NoBucket",
    "Refused",
    "StorageError",
    "absolute",
    "atomic_file",
    "byte_range",
    "check_access",
    "decoded",
    "delete",
    "exists",
    "files_below",
    "is_chain",
    "is_folder",
    "is_remote",
    "is_web",
    "join",
    "matches",
    "open_file",
    "parent",
    "read_bytes",
    "read_if_exists",
    "read_json",
    "read_json_if_exists",
    "read_lines",
    "read_row_group",
    "read_table",
    "resolve",
    "retries",
    "row_group_sizes",
    "row_groups",
    "sha256",
    "temporary_folder",
    "with_retries",
    "without_secrets",
    "write_bytes",
    "write_json",
    "write_table",
]
