"""Stored replies of a language model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from sparc_dist import storage


class Replies(Protocol):
    """Stores the replies to questions, so that no question is asked twice."""

    def get(self, question: str) -> str | None:
        """Returns the stored reply, if any."""

    def put(self, question: str, reply: str) -> None:
        """Stores a readable reply."""


@dataclass
class StoredReplies:
    """An LLM's replies, stored in the run, so that a resumed run asks nothing again.

    folder: where the replies are stored. endpoint: the URL and model of the LLM.
    """

    folder: str
    endpoint: str = ""

    def get(self, question: str) -> str | None:
        """Returns the reply to a question asked before, if any."""
        stored = storage.read_json_if_exists(self._url(question))
        reply = stored.get("reply") if isinstance(stored, dict) else None
        return reply if isinstance(reply, str) else None

    def put(self, question: str, reply: str) -> None:
        """Stores a reply."""
        storage.write_json(self._url(question), {"question": question, "reply": reply})

    def _url(self, question: str) -> str:
        # The hash includes the endpoint, because each model has its own reply.
        name = hashlib.sha256(f"{self.endpoint}\n{question}".encode()).hexdigest()[:24]
        return storage.join(self.folder, f"{name}.json")
