"""The page in a browser: what people see, click and type, and that nothing leaves the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
import pytest
from contracts.hub import HubProcess
from contracts.hub_rows import ACTOR, AGREED, message, publish
from hub.world import contribution, private_federation
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from sqlalchemy import update

from fedbo.exchange.hub.memberships import Invitation
from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.store import schema
from fedbo.message import Message

pytestmark = pytest.mark.slow

HOSTILE, LONG = "<img src=x onerror=alert(1)>", "W" * 48
MEMBERS = ("alpha", "beta", "gamma", "delta")
#: What Chromium says of every answer with such a status, also where the page expects it.
_EXPECTED = re.compile(
    r"Failed to load resource: the server responded with a status of (40[14]|503)"
)

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(f"sqlite:///{tmp_path_factory.mktemp('hub')}/hub.db") as hub:
        yield hub


class Site:
    """A federation at a hub, with members that publish."""

    def __init__(
        self, hub: HubProcess, name: str, *members: str, agreed: Federation = AGREED
    ) -> None:
        self.hub, self.name = hub, name
        secret = hub.federation(name, agreed)
        self.tokens = {member: hub.enrol(secret, member) for member in members}
        self.operator = hub.operator(name[-40:])
        with store.begin(hub.engine) as connection:
            for invited in store.invitations(connection, name):
                store.drop_invitation(connection, name, invited.id, actor=ACTOR)

    def publish(self, sent: Message) -> None:
        token = self.tokens[sent.sender.partition("/")[0]]
        with store.begin(self.hub.engine) as connection:
            publish(connection, token, sent)


@pytest.fixture
def site(hub: HubProcess, request: pytest.FixtureRequest) -> Site:
    """A federation of this test, with four members."""
    site = Site(hub, re.sub("[^a-z]+", "-", request.node.name)[:60].strip("-"), *MEMBERS)
    for number, name in enumerate(MEMBERS, 1):
        site.publish(message(name, t_n=10 * number))
    return site


@pytest.fixture
def context(browser: Browser, hub: HubProcess) -> Iterator[BrowserContext]:
    """Pages in which nothing may go wrong, and from which no request may leave the hub."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    context.on("request", lambda request: faults.extend(_foreign(request.url, hub.address)))
    context.on("weberror", lambda error: faults.append(f"error: {error.error}"))
    context.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    context.on(
        "console",
        lambda line: (
            faults.append(line.text)
            if line.type in ("error", "warning") and not _EXPECTED.match(line.text)
            else None
        ),
    )
    yield context
    context.close()
    assert faults == []


def _foreign(url: str, address: str) -> list[str]:
    parts = urlsplit(url)
    is_own = parts.scheme in ("data", "blob") or parts.netloc == urlsplit(address).netloc
    return [] if is_own else [f"request to {url}"]


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def log_in(page: Page, hub: HubProcess, token: str) -> None:
    page.goto(hub.address)
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def look(page: Page, site: Site, member: str | None = None) -> None:
    """Log in, as an operator unless a member is named, and look at the federation."""
    log_in(page, site.hub, site.operator if member is None else site.tokens[member])
    if member is None:
        page.goto(f"{site.hub.address}/#/{site.name}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)


def row(page: Page, name: str) -> Locator:
    table = page.get_by_role("table", name="Members of the federation")
    return table.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


def figure(page: Page, name: str) -> Locator:
    named = page.locator("#figures .figure").filter(has=page.get_by_text(name, exact=True))
    return named.locator(".value")


def test_a_wrong_token_is_refused_and_the_right_one_is_not_kept(page: Page, site: Site) -> None:
    page.goto(site.hub.address)
    page.get_by_label("Token", exact=True).fill("fedbo-o-" + "x" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    token = site.tokens["alpha"]
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert token not in page.content() and token not in page.url
    assert token not in page.evaluate("document.cookie + JSON.stringify(localStorage)")


def test_an_operator_sees_the_federation(page: Page, site: Site) -> None:
    look(page, site)
    for name, value in (("Members", "4"), ("Messages", "4"), ("New today", "4")):
        expect(figure(page, name)).to_have_text(value)
    expect(row(page, "gamma")).to_contain_text("30")
    expect(page.get_by_text("delta published").first).to_be_visible()
    site.publish(message("alpha/lung", t_n=33))  # what others do appears by itself
    expect(figure(page, "Messages")).to_have_text("5")
    expect(row(page, "alpha")).to_contain_text("43")


def test_an_invitation_made_here_works(page: Page, site: Site) -> None:
    look(page, site)
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("Members who may use it").fill("2")
    page.get_by_role("button", name="Make the invitation").click()
    word = page.get_by_label("Invitation", exact=True).input_value()
    page.get_by_role("button", name="Done").click()
    assert word not in page.content()
    body = {"secret": Invitation.parse(word).secret, "name": "epsilon"}
    assert (
        httpx2.post(site.hub.address + "/v1/members", trust_env=False, json=body).status_code == 201
    )
    expect(row(page, "epsilon")).to_be_visible()
    page.get_by_role("button", name="Cancel the invitation").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the invitation").click()
    expect(page.get_by_text("None. An invitation lets")).to_be_visible()
    assert (
        httpx2.post(
            site.hub.address + "/v1/members", trust_env=False, json=body | {"name": "zeta"}
        ).status_code
        == 403
    )


def test_an_operator_revokes_and_removes(page: Page, site: Site) -> None:
    look(page, site)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Manage beta").click()
    dialog.get_by_role("button", name="Revoke this member").click()
    expect(row(page, "beta")).to_contain_text("revoked")
    page.get_by_role("button", name="Manage gamma").click()
    dialog.get_by_label("Remove").check()
    dialog.get_by_role("button", name="Remove this member").click()
    expect(row(page, "gamma")).to_have_count(0)


def test_a_member_sees_no_management_gets_a_token_and_leaves(page: Page, site: Site) -> None:
    look(page, site, "alpha")
    expect(row(page, "alpha")).to_contain_text("you")
    for name in ("Invite…", "Manage alpha", "Manage beta"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.locator("#feed").get_by_text("beta")).to_have_count(0)
    page.get_by_role("button", name="New token…").click()
    page.get_by_role("button", name="Make a new token").click()
    token = page.get_by_role("dialog").get_by_role("textbox", name="Token").input_value()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Log in with the new one.")).to_be_visible()
    log_in(page, site.hub, token)
    page.get_by_role("button", name="Leave…").click()
    page.get_by_role("button", name="Leave the federation").click()
    expect(page.get_by_text("You have left the federation.")).to_be_visible()


def test_names_are_only_ever_text(page: Page, hub: HubProcess) -> None:
    site = Site(hub, "hostile", HOSTILE, "{{7*7}}")
    site.publish(message(HOSTILE))
    look(page, site)
    expect(row(page, HOSTILE)).to_be_visible()
    page.get_by_role("button", name=f"Manage {HOSTILE}").click()
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text(HOSTILE)
    assert page.locator("img").count() == 1  # the sign of the hub


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_it_fits_and_can_be_read(page: Page, hub: HubProcess, width: int) -> None:
    """No view scrolls sideways, and axe finds nothing."""
    from axe_playwright_python.sync_playwright import Axe

    site = Site(hub, f"{'w' * 50}-{width}", "alpha", LONG, HOSTILE)
    for name in site.tokens:
        site.publish(message(name))
    page.set_viewport_size({"width": width, "height": 800})
    look(page, site)
    expect(row(page, "alpha")).to_be_visible()
    for view in ("federation", "invite"):
        if view == "invite":
            page.get_by_role("button", name="Invite…").click()
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0, view
        assert Axe().run(page).generate_report() == "Found 0 accessibility violations:\n", view


def test_a_private_federation_shows_its_releases(page: Page, hub: HubProcess) -> None:
    agreed = private_federation()
    site = Site(hub, "private", *MEMBERS, agreed=agreed)
    for name in MEMBERS:
        site.publish(contribution(agreed, name))
    look(page, site)
    card = page.get_by_role("region", name="Private releases")
    expect(card).to_contain_text("Made: 0 of 2 planned.")
    with store.begin(hub.engine) as connection:
        store.make_release(connection, site.name, actor=ACTOR)
    expect(card).to_contain_text("Made: 1 of 2 planned, the last one just now.")


def test_a_federation_that_was_restored_is_closed(page: Page, site: Site) -> None:
    with store.begin(site.hub.engine) as connection:
        own = schema.federation.c.name == site.name
        connection.execute(update(schema.federation).where(own).values(is_unreconciled=True))
    look(page, site)
    expect(page.get_by_text("no member can do anything")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    log_in(page, site.hub, site.tokens["alpha"])
    expect(page.get_by_text(f"fedbo hub reconcile {site.name}")).to_be_visible()
    with store.begin(site.hub.engine) as connection:
        store.reconcile(connection, site.name, actor=ACTOR)
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)


def test_the_documentation_of_the_api_is_served_from_here(page: Page, hub: HubProcess) -> None:
    page.goto(f"{hub.address}/docs")
    expect(page.get_by_role("heading", name="fedbo hub")).to_be_visible()
    expect(page.get_by_text("/v1/federations/{federation}/overview")).to_be_visible()
