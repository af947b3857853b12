"""What a hub tells of its federations, members, invitations and releases.

Each record is defined here once: the store returns it, the page shows it, and the commands print
it. What members and the hub say to each other is in `fedbo.exchange.hub.wire`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedbo.exchange.hub.wire import Enrolled as Enrolled


class Record(BaseModel):
    """Something that a hub tells."""

    model_config = ConfigDict(frozen=True)


class FederationInfo(Record):
    """A federation at this hub."""

    name: str
    fingerprint: str
    members: int = Field(description="How many members it has.")
    messages: int = Field(description="How many messages it keeps.")
    created: float


class OpenInvitation(Record):
    """An invitation that can be used, without its secret."""

    id: int
    uses: int = Field(description="How many members can still enrol.")
    expires: float
    created: float


class NewInvitation(OpenInvitation):
    """A new invitation, shown once."""

    invitation: str


class Member(Record):
    """A member and what the hub has of it."""

    id: int
    name: str
    key: str = Field(description="Its public key.")
    joined: float
    seen: float
    is_revoked: bool
    is_suspended: bool = Field(description="It was restored, and not admitted since.")
    agents: int = Field(default=0, description="Its agents whose messages are kept.")
    messages: int = 0
    bytes: int = Field(default=0, description="Of these messages.")
    trials: int = Field(default=0, description="Observations behind these messages.")


class Members(Record):
    """Some of a federation's members."""

    matching: int = Field(description="How many members have the text in their name.")
    rows: list[Member]


class Unlisted(Record):
    """A member that was revoked, because a new list does not have it with its key."""

    name: str
    key: str = Field(description="The key that it had.")
    listed: str = Field(description="The key that the list has under its name; empty: none.")


class AuditLine(Record):
    """A line of the audit log."""

    number: int
    time: datetime
    federation: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class ReleaseInfo(Record):
    """A private release."""

    number: int = Field(description="From 1.")
    time: float = Field(description="When it was made, in seconds since 1970.")
    members: int = Field(description="How many members' contributions are in it.")
    trials: int = Field(description="How many trials are behind these.")
    is_lost: bool = Field(
        description="Whether only its number is known, because the hub was restored from a backup."
    )


class ReleaseLedger(Record):
    """The releases of a federation, what was planned, and what they cost."""

    epsilon: float = Field(description="ε that all planned releases cost each member, at most.")
    delta: float = Field(description="δ of this guarantee.")
    planned: int = Field(description="How many releases are planned.")
    spent: float | None = Field(
        description="ε of the releases so far; null: the hub has no accountant installed."
    )
    contributed: int = Field(description="How many members have contributed from enough trials.")
    trials: int = Field(description="How many trials are behind their contributions.")
    least_members: int = Field(
        description="The hub waits for so many new contributions; 0: the operator makes releases."
    )
    least_trials: int = Field(description="From how many trials a contribution counts.")
    is_restored: bool = Field(description="true: no release is made before fedbo hub admit.")
    releases: list[ReleaseInfo]


class Figures(Record):
    """Key figures; revoked members are counted apart, and only messages that are out."""

    members: int
    revoked: int
    seen: int = Field(description="Members that published or fetched in the last 24 hours.")
    agents: int
    messages: int
    bytes: int
    new: int = Field(description="Messages that are from the last 24 hours.")
