"""What can be done to federations, members and operators; the API and the command line do it here.

Every function works on a connection in a transaction (`fedbo.hub.database.begin` if it changes
something), and writes its lines of the audit log in the same transaction. It checks everything
before it changes anything: after a `Refused` the transaction can go on with other work.

A transaction on PostgreSQL that changes a federation, its members or their messages locks the
federation's row first (`lock_federation`), and several federations in the order of their ids;
otherwise two transactions could wait for each other.
"""

from fedbo.hub.admin.audit import audit_lines, record
from fedbo.hub.admin.due import Standing, is_due
from fedbo.hub.admin.federations import (
    Epoch,
    FederationRow,
    Overview,
    add_epoch,
    agree,
    create_federation,
    epoch_file,
    federations,
    find_federation,
    lock_federation,
    take_cursors,
)
from fedbo.hub.admin.invitations import (
    Invited,
    Opened,
    drop_invitation,
    invitations,
    invite,
    open_invitation,
)
from fedbo.hub.admin.members import (
    Enrolled,
    MemberInfo,
    MemberRow,
    enrol,
    find_member,
    leave,
    members,
    rekey,
    remove,
    revoke,
    rotate,
)
from fedbo.hub.admin.names import COMMAND_LINE, SCHEDULE, UNKNOWN, check_person, operator_actor
from fedbo.hub.admin.operators import drop_operator, new_operator, operators
from fedbo.hub.admin.pruning import prune
from fedbo.hub.admin.releases import (
    Ledger,
    Made,
    due_releases,
    ledger,
    make_due_release,
    make_release,
    next_number,
    reconcile,
)

__all__ = [
    "COMMAND_LINE",
    "SCHEDULE",
    "UNKNOWN",
    "Enrolled",
    "Epoch",
    "FederationRow",
    "Invited",
    "Ledger",
    "Made",
    "MemberInfo",
    "MemberRow",
    "Opened",
    "Overview",
    "Standing",
    "add_epoch",
    "agree",
    "audit_lines",
    "check_person",
    "create_federation",
    "drop_invitation",
    "drop_operator",
    "due_releases",
    "enrol",
    "epoch_file",
    "federations",
    "find_federation",
    "find_member",
    "invitations",
    "invite",
    "is_due",
    "leave",
    "ledger",
    "lock_federation",
    "make_due_release",
    "make_release",
    "members",
    "new_operator",
    "next_number",
    "open_invitation",
    "operator_actor",
    "operators",
    "prune",
    "reconcile",
    "record",
    "rekey",
    "remove",
    "revoke",
    "rotate",
    "take_cursors",
]
