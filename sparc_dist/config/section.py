"""What all sections of a config share: the names and URLs that they may contain."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sparc_dist.storage import is_remote, without_secrets

#: Names become folders of the run, so they must be plain.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]*$", max_length=80)]

KEYS_IN_URL = "may contain a user name or key; remove it, because the config is stored in the run"


def check_url(url: str) -> str:
    """Raises ValueError unless a path or URL can be used and stored."""
    if is_remote(url) and without_secrets(url) != url:
        raise ValueError(KEYS_IN_URL)
    if "\0" in url:
        raise ValueError("contains a NUL, which no path may contain; remove it")
    return url


#: A local path or a URL; it is written to run.json, so it must not contain a secret.
Url = Annotated[str, AfterValidator(check_url)]


class Section(BaseModel):
    """A part of the config; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)
