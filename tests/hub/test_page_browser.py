"""The page in a browser: what people see, click and type, and that nothing leaves the hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from contracts.hub import HubProcess
from contracts.hub_rows import ACTOR, AGREED, message, publish
from hub.world import contribution, private_federation
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from sqlalchemy import update

from fedbo.federation import Federation
from fedbo.hub import store
from fedbo.hub.store import schema
from fedbo.message import Message
from fedbo.testing.keys import keys_of

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


def look(page: Page, site: Site, member: str = "alpha") -> None:
    """Log in, and look at the federation."""
    log_in(page, site.hub, site.tokens[member])
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)


def row(page: Page, name: str) -> Locator:
    table = page.get_by_role("table", name="Members of the federation")
    return table.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


def figure(page: Page, name: str) -> Locator:
    named = page.locator("#figures .figure").filter(has=page.get_by_text(name, exact=True))
    return named.locator(".value")


def test_a_wrong_token_is_refused_and_the_right_one_is_not_kept(page: Page, site: Site) -> None:
    page.goto(site.hub.address)
    page.get_by_label("Token", exact=True).fill("fedbo-m-" + "x" * 43)
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


def test_a_member_sees_the_federation_and_changes_nothing(page: Page, site: Site) -> None:
    look(page, site, "delta")
    buttons = page.get_by_role("button")
    assert buttons.all_inner_texts() == ["Log out"]
    for name, value in (("Members", "4"), ("Messages", "4"), ("New today", "4")):
        expect(figure(page, name)).to_have_text(value)
    expect(row(page, "gamma")).to_contain_text("30")
    expect(page.get_by_text("delta published").first).to_be_visible()
    expect(row(page, "delta")).to_contain_text("you")
    expect(page.locator("#feed").get_by_text("alpha")).to_have_count(0)
    expect(row(page, "delta")).to_contain_text("you")
    expect(page.locator("#feed").get_by_text("alpha")).to_have_count(0)
    site.publish(message("alpha/lung", t_n=33))  # what others do appears by itself
    expect(figure(page, "Messages")).to_have_text("5")
    expect(row(page, "alpha")).to_contain_text("43")


def test_names_are_only_ever_text(page: Page, hub: HubProcess) -> None:
    site = Site(hub, "hostile", HOSTILE, "{{7*7}}")
    site.publish(message(HOSTILE))
    look(page, site, HOSTILE)
    expect(row(page, HOSTILE)).to_be_visible()
    assert page.locator("img").count() == 1  # the sign of the hub


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_it_fits_and_can_be_read(page: Page, hub: HubProcess, width: int, tmp_path: Path) -> None:
    """No view scrolls sideways, and axe finds nothing."""
    from axe_playwright_python.sync_playwright import Axe

    site = Site(hub, f"{'w' * 50}-{width}", "alpha", LONG, HOSTILE)
    for name in site.tokens:
        site.publish(message(name))
    page.set_viewport_size({"width": width, "height": 800})
    look(page, site)
    expect(row(page, "alpha")).to_be_visible()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    assert Axe().run(page).generate_report() == "Found 0 accessibility violations:\n"
    page.screenshot(path=tmp_path / f"{width}.png", full_page=True)


def test_a_private_federation_shows_its_releases(page: Page, hub: HubProcess) -> None:
    agreed = private_federation()
    site = Site(hub, "private", *MEMBERS, agreed=agreed)
    for name in MEMBERS:
        site.publish(contribution(agreed, name))
    look(page, site)
    card = page.get_by_role("region", name="Private releases")
    expect(card).to_contain_text("Made: 0 of 2 planned.")
    with store.begin(hub.engine) as connection:
        store.make_release(connection, site.name, actor=ACTOR, keys=keys_of("hub"))
    expect(card).to_contain_text("Made: 1 of 2 planned, the last one just now.")


def test_a_suspended_member_sees_why(page: Page, site: Site) -> None:
    with store.begin(site.hub.engine) as connection:
        number = store.find_federation(connection, site.name).id
        own = schema.member.c.federation == number
        connection.execute(update(schema.member).where(own).values(is_suspended=True))
    log_in(page, site.hub, site.tokens["alpha"])
    expect(page.get_by_text(f"fedbo hub admit {site.name}")).to_be_visible()
    with store.begin(site.hub.engine) as connection:
        store.admit(connection, site.name, MEMBERS, actor=ACTOR)
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)


def test_the_documentation_of_the_api_is_served_from_here(page: Page, hub: HubProcess) -> None:
    page.goto(f"{hub.address}/docs")
    expect(page.get_by_role("heading", name="fedbo hub")).to_be_visible()
    expect(page.get_by_text("/v1/federations/{federation}/overview")).to_be_visible()
