"""Why a hub refuses something: problems as RFC 9457 describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedbo.exchange.hub.wire import PROBLEM_TYPE, Problem

MEDIA_TYPE = PROBLEM_TYPE

#: The status and the title of each problem.
PROBLEMS: dict[str, tuple[int, str]] = {
    "wrong-request": (422, "The request has a wrong form"),
    "wrong-token": (401, "The token is not valid"),
    "not-invited": (403, "The invitation is not valid"),
    "no-such-federation": (404, "There is no such federation"),
    "not-found": (404, "There is no such thing"),
    "wrong-method": (405, "The address does not take this method"),
    "name-taken": (409, "The name is taken"),
    "key-taken": (409, "The key is another member's"),
    "too-many-agents": (409, "The member has too many agents"),
    "no-privacy-plan": (409, "The federation has no privacy plan"),
    "nothing-to-release": (409, "There are no contributions to release"),
    "release-made": (409, "The release was made already"),
    "budget-spent": (409, "All planned releases were made"),
    "suspended": (503, "The hub was restored, and its operator must look first"),
    "no-release-key": (409, "The release cannot be signed as it must be"),
    "too-large": (413, "The request is too large"),
    "wrong-name": (422, "The name cannot be used"),
    "wrong-federation": (422, "The federation file cannot be used"),
    "wrong-message": (422, "The message cannot be used"),
    "wrong-signature": (422, "The signature is wrong"),
    "wrong-sender": (403, "The sender is not an agent of this member"),
    "wrong-key": (403, "The message is not signed with the member's key"),
    "too-slow": (408, "The request takes too long"),
    "too-many-requests": (429, "There were too many requests"),
    "failed": (500, "The hub failed"),
    "busy": (503, "The hub has too much to do"),
    "not-ready": (503, "The hub is not ready"),
}


class Refused(Exception):
    """Something is refused, and nothing was changed.

    Args:
        slug: Which of the `PROBLEMS` it is.
        detail: What was given, what was expected, and what to do; never a secret.
        retry_after: Seconds after which to try again; None if that does not help.
    """

    def __init__(self, slug: str, detail: str, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.retry_after = slug, detail, retry_after
        self.status, self.title = PROBLEMS[slug]
        self.headers: Mapping[str, str] = {}  # of the answer

    def document(self, request: str) -> dict[str, Any]:
        """Return the problem as RFC 9457 writes it, of the request with this id in the log."""
        problem = Problem(
            f"/problems/{self.slug}", self.title, self.status, self.detail, instance=request
        )
        return asdict(problem)
