"""Replies of a language model, kept so that no question is asked twice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from sparc_dist import storage


class Replies(Protocol):
    """Keeps the replies to questions, so that no question is asked twice."""

    def get(self, question: str) -> str | None:
        """The reply that was put, if any."""

    def put(self, question: str, reply: str) -> None:
        """Keep a usable reply."""


@dataclass
class StoredReplies:
    """An LLM's replies, kept in the run, so that a rerun asks nothing.

    endpoint: its URL and model.
    """

    folder: str
    endpoint: str = ""

    def get(self, question: str) -> str | None:
        """The reply to a question asked before."""
        kept = storage.read_json_if_exists(self._url(question))
        reply = kept.get("reply") if isinstance(kept, dict) else None
        return reply if isinstance(reply, str) else None

    def put(self, question: str, reply: str) -> None:
        """Keep a reply."""
        storage.write_json(self._url(question), {"question": question, "reply": reply})

    def _url(self, question: str) -> str:
        # Another model's reply to the same question is no reply.
        name = hashlib.sha256(f"{self.endpoint}\n{question}".encode()).hexdigest()[:24]
        return storage.join(self.folder, f"{name}.json")
