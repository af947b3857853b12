"""All that a hub stores, and all SQL; the API, the page and the commands do everything here.

Every function works on a connection in a transaction (`begin` if it changes something), and writes
its lines of the audit log, which say who the ``actor`` was, in the same transaction. It checks
everything before it changes anything: after a `fedbo.hub.problems.Refused` the transaction can go
on with other work.
"""

from fedbo.errors import HubError as HubError
from fedbo.hub.store.audit import audit_lines as audit_lines
from fedbo.hub.store.audit import latest_lines as latest_lines
from fedbo.hub.store.audit import prune as prune
from fedbo.hub.store.database import check_version as check_version
from fedbo.hub.store.database import open_database as open_database
from fedbo.hub.store.database import unusable as unusable
from fedbo.hub.store.federations import create_federation as create_federation
from fedbo.hub.store.federations import delete_federation as delete_federation
from fedbo.hub.store.federations import drop_invitation as drop_invitation
from fedbo.hub.store.federations import federations as federations
from fedbo.hub.store.federations import invitations as invitations
from fedbo.hub.store.federations import invite as invite
from fedbo.hub.store.federations import open_invitation as open_invitation
from fedbo.hub.store.figures import counts as counts
from fedbo.hub.store.figures import figures_of as figures_of
from fedbo.hub.store.members import admit as admit
from fedbo.hub.store.members import enrol as enrol
from fedbo.hub.store.members import find_member as find_member
from fedbo.hub.store.members import leave as leave
from fedbo.hub.store.members import members as members
from fedbo.hub.store.members import new_nonce as new_nonce
from fedbo.hub.store.members import rekey as rekey
from fedbo.hub.store.members import remove as remove
from fedbo.hub.store.members import revoke as revoke
from fedbo.hub.store.members import rotate as rotate
from fedbo.hub.store.members import update_federation as update_federation
from fedbo.hub.store.messages import fetch as fetch
from fedbo.hub.store.messages import listed as listed
from fedbo.hub.store.messages import publish as publish
from fedbo.hub.store.releases import due_releases as due_releases
from fedbo.hub.store.releases import ledger as ledger
from fedbo.hub.store.releases import make_due_release as make_due_release
from fedbo.hub.store.releases import make_release as make_release
from fedbo.hub.store.sessions import VALID as VALID
from fedbo.hub.store.sessions import by_session as by_session
from fedbo.hub.store.sessions import log_in as log_in
from fedbo.hub.store.sessions import log_out as log_out
from fedbo.hub.store.transaction import Caller as Caller
from fedbo.hub.store.transaction import FederationRow as FederationRow
from fedbo.hub.store.transaction import begin as begin
from fedbo.hub.store.transaction import by_token as by_token
from fedbo.hub.store.transaction import check_still as check_still
from fedbo.hub.store.transaction import find_federation as find_federation
from fedbo.hub.store.transaction import is_seen_anew as is_seen_anew
from fedbo.hub.store.transaction import lock_federation as lock_federation
from fedbo.hub.store.transaction import note_seen as note_seen
from fedbo.hub.store.transaction import record as record
from fedbo.hub.store.transaction import take_cursors as take_cursors
