"""The page in a browser: what people see, click and type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub.browser import HubProcess, Site, Watch, chromium
from hub.private import contribution, federation
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from fedbo.exchange.hub.memberships import Invitation
from fedbo.exchange.hub.wire import MEDIA_TYPE
from fedbo.hub import admin
from fedbo.hub.database import begin

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "W" * 48
MEMBERS = ("alpha", "beta", "gamma", "delta")

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    hub = HubProcess(tmp_path_factory.mktemp("hub"))
    yield hub
    hub.close()


@pytest.fixture
def site(hub: HubProcess, request: pytest.FixtureRequest) -> Site:
    """A federation of this test, with four members of which two pairs are alike."""
    site = Site(hub, re.sub("[^a-z]+", "-", request.node.name)[:60].strip("-"), *MEMBERS)
    for i, name in enumerate(MEMBERS):
        site.publish(name, trials=10 * (i + 1), seed=i // 2)
    site.ask("PUT", "progress", "beta", json=dict(sender="beta", trials=20, best=0.9, saved=7.0))
    return site


@pytest.fixture
def context(browser: Browser, hub: HubProcess) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture
def watch(context: BrowserContext, hub: HubProcess) -> Iterator[Watch]:
    watch = Watch(context, hub.address)
    yield watch
    assert watch.faults == []


@pytest.fixture
def page(context: BrowserContext, watch: Watch) -> Page:
    return context.new_page()


def log_in(page: Page, hub: HubProcess, token: str) -> None:
    page.goto(hub.address)
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def look(page: Page, site: Site, member: str | None = None) -> None:
    """Log in, as an operator unless a member is named, and look at the federation."""
    token = site.hub.operator if member is None else site.tokens[member]
    log_in(page, site.hub, token)
    if member is None:
        page.goto(f"{site.hub.address}/#/{site.name}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)


def row(page: Page, name: str) -> Locator:
    table = page.get_by_role("table", name="Members of the federation")
    return table.get_by_role("row").filter(has=page.get_by_text(name, exact=True))


def figure(page: Page, name: str) -> Locator:
    return (
        page.locator("#figures .figure")
        .filter(has=page.get_by_text(name, exact=True))
        .locator(".value")
    )


def test_a_wrong_token_is_refused_and_the_right_one_is_not_kept_in_the_page(
    page: Page, site: Site
) -> None:
    page.goto(site.hub.address)
    page.get_by_label("Token", exact=True).fill("fedbo-o-" + "x" * 43)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    token = site.tokens["alpha"]
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(site.name)
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and cookie["path"] == "/"
    assert token not in page.content() and token not in page.url
    assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == [
        "", 0, 0,
    ]  # fmt: skip


def test_an_operator_sees_the_federation(page: Page, site: Site) -> None:
    look(page, site)
    expect(figure(page, "Members")).to_have_text("4")
    expect(figure(page, "Messages")).to_have_text("4")
    expect(figure(page, "Last hour")).to_have_text("4")
    expect(page.get_by_text("Healthy")).to_be_visible()
    expect(row(page, "beta")).to_contain_text("best 0.9, 7 saved")
    expect(row(page, "gamma")).to_contain_text("not shared")
    expect(row(page, "delta")).to_contain_text("40")
    expect(page.get_by_text("about 7 saved")).to_be_visible()
    points = page.get_by_role("listbox").get_by_role("option")
    expect(points).to_have_count(4)
    expect(points.nth(0)).to_have_accessible_name(re.compile(r"alpha, 10 trials; most alike: beta"))
    expect(page.get_by_role("img", name="Bar chart: 4 published")).to_be_visible()
    page.get_by_role("radio", name="7 days").check(force=True)
    expect(page.get_by_text("In the last 7 days")).to_be_visible()
    page.get_by_text("The same as a table").first.click()
    alike = page.get_by_role("table", name="Each agent’s most alike peers")
    expect(alike.get_by_role("row").nth(3)).to_contain_text(re.compile("delta.*40.*gamma"))
    expect(page.get_by_text("delta published").first).to_be_visible()


def test_an_operator_chooses_among_federations(page: Page, site: Site) -> None:
    Site(site.hub, f"{site.name}-b")
    log_in(page, site.hub, site.hub.operator)
    page.get_by_role("link", name=f"{site.name}-b", exact=True).click()
    expect(page.get_by_text("No members yet.")).to_be_visible()
    expect(page.locator("#health-pill")).to_have_text("New")
    page.get_by_role("link", name="All federations").click()
    page.get_by_role("link", name=site.name, exact=True).click()
    expect(figure(page, "Members")).to_have_text("4")
    page.goto(f"{site.hub.address}/#/there-is-none")
    expect(page.get_by_role("heading", name="Federations")).to_be_visible()


def test_an_invitation_made_here_works(page: Page, site: Site) -> None:
    look(page, site)
    page.get_by_role("button", name="Invite…").click()
    page.get_by_label("Members who may use it").fill("2")
    page.get_by_role("button", name="Make the invitation").click()
    word = page.get_by_label("Invitation", exact=True).input_value()
    line = page.get_by_role("textbox", name="What the new member types").input_value()
    assert line == f"fedbo join {site.hub.address} --invite - < invitation.txt"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy: Invitation").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == word
    page.get_by_role("button", name="Done").click()
    assert word not in page.content()
    expect(page.get_by_text("2 uses left")).to_be_visible()
    body = {"secret": Invitation.parse(word).secret, "name": "epsilon"}
    assert site.hub.http.post("/v1/members", json=body).status_code == 201
    expect(row(page, "epsilon")).to_be_visible()
    expect(page.locator("#news")).to_contain_text("epsilon joined")
    page.get_by_role("button", name="Cancel the invitation").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the invitation").click()
    expect(page.get_by_text("None. An invitation lets")).to_be_visible()
    body["name"] = "zeta"
    assert site.hub.http.post("/v1/members", json=body).status_code == 403


def test_an_operator_revokes_and_removes(page: Page, site: Site) -> None:
    look(page, site)
    page.get_by_role("button", name="Manage beta").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Manage beta").click()
    dialog.get_by_role("button", name="Revoke this member").click()
    expect(row(page, "beta")).to_contain_text("revoked")
    expect(figure(page, "Members")).to_have_text("3")
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(3)
    page.get_by_role("button", name="Manage gamma").click()
    dialog.get_by_label("Remove").check()
    dialog.get_by_role("button", name="Remove this member").click()
    expect(row(page, "gamma")).to_have_count(0)
    with site.hub.engine.connect() as connection:
        left = {one.name: one.is_revoked for one in admin.members(connection, site.name)}
    assert left == {"alpha": False, "beta": True, "delta": False}


def test_the_log_is_exported(page: Page, site: Site, tmp_path: Path) -> None:
    look(page, site)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export the log").click()
    assert download.value.suggested_filename == f"{site.name}-audit.jsonl"
    download.value.save_as(tmp_path / "log")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    actions = [line["action"] for line in lines]
    assert actions.count("published") == 4 and "created" in actions


def test_a_member_sees_no_management(page: Page, site: Site, tmp_path: Path) -> None:
    look(page, site, "beta")
    expect(row(page, "beta")).to_contain_text("you")
    expect(row(page, "alpha")).to_be_visible()
    for name in ("Invite…", "Manage alpha", "Manage beta"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("heading", name="Open invitations")).to_have_count(0)
    expect(page.get_by_role("link", name="All federations")).to_have_count(0)
    expect(page.get_by_text("beta reported progress")).to_be_visible()
    expect(page.locator("#feed").get_by_text("alpha")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export the log").click()
    download.value.save_as(tmp_path / "log")
    actors = {json.loads(line)["actor"] for line in (tmp_path / "log").read_text().splitlines()}
    assert actors == {"beta"}


def test_a_member_gets_a_new_token(page: Page, site: Site) -> None:
    look(page, site, "alpha")
    page.get_by_role("button", name="New token…").click()
    page.get_by_role("button", name="Make a new token").click()
    token = page.get_by_role("dialog").get_by_role("textbox", name="Token").input_value()
    page.wait_for_timeout(4000)  # longer than it takes to ask again, now without a session
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Log in with the new one.")).to_be_visible()
    assert token not in page.content()
    log_in(page, site.hub, token)
    old = {"token": site.tokens["alpha"]}
    assert site.hub.http.post("/v1/session", json=old).status_code == 401


def test_a_member_leaves(page: Page, site: Site) -> None:
    look(page, site, "alpha")
    page.get_by_role("button", name="Leave…").click()
    page.get_by_role("button", name="Leave the federation").click()
    expect(page.get_by_text("You have left the federation.")).to_be_visible()
    with site.hub.engine.connect() as connection:
        left = [one.name for one in admin.members(connection, site.name)]
    assert left == ["beta", "gamma", "delta"]


def test_what_others_do_appears_by_itself(page: Page, site: Site) -> None:
    look(page, site)
    expect(figure(page, "Messages")).to_have_text("4")
    page.evaluate("window.mark = 1; scrollTo(0, 700)")
    before = page.evaluate("scrollY")
    manage = page.get_by_role("button", name="Manage gamma")
    manage.focus()
    manage.evaluate("(node) => { window.kept = node }")
    site.publish("alpha/lung", trials=33)
    expect(figure(page, "Messages")).to_have_text("5")
    expect(row(page, "alpha")).to_contain_text("43")
    expect(page.get_by_text("alpha published for alpha/lung")).to_be_visible()
    expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(5)
    expect(manage).to_be_focused()
    assert page.evaluate("window.mark === 1 && window.kept.isConnected")
    assert page.evaluate("scrollY") == before


def test_logging_out_ends_the_session(page: Page, site: Site) -> None:
    look(page, site, "alpha")
    (cookie,) = page.context.cookies()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("You are logged out.")).to_be_visible()
    assert page.context.cookies() == []
    old = {"Cookie": f"fedbo-session={cookie['value']}"}
    answer = site.hub.http.get(f"/v1/federations/{site.name}/overview", headers=old)
    assert answer.status_code == 401
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_a_revoked_member_is_logged_out(page: Page, site: Site) -> None:
    look(page, site, "alpha")
    with begin(site.hub.engine) as connection:
        admin.revoke(connection, site.name, "alpha", actor=admin.COMMAND_LINE)
    expect(page.get_by_text("Your session has ended.")).to_be_visible()


def test_the_page_says_that_it_is_offline_and_recovers(
    page: Page, watch: Watch, site: Site
) -> None:
    look(page, site)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    watch.may_be_offline = True
    site.hub.stop()
    expect(page.get_by_text(re.compile(r"Offline, last updated \d\d:\d\d"))).to_be_visible()
    expect(row(page, "alpha")).to_be_visible()
    site.hub.start()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    site.publish("alpha", sequence=2, trials=77)
    expect(row(page, "alpha")).to_contain_text("77")


def test_names_are_only_ever_text(page: Page, hub: HubProcess) -> None:
    other = "<textarea><script>alert(2)"
    site = Site(hub, "hostile", HOSTILE, other, "{{7*7}}")
    for name in ("{{7*7}}", HOSTILE):
        site.publish(name)
    look(page, site)
    expect(row(page, HOSTILE)).to_be_visible()
    images = page.locator("img")
    assert images.count() == 1  # the sign of the hub
    page.get_by_role("button", name=f"Manage {HOSTILE}").click()
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text(HOSTILE)
    page.get_by_role("button", name="Revoke this member").click()
    expect(page.get_by_text(f"{HOSTILE} is revoked.")).to_be_visible()
    page.get_by_label("Find a member by name").fill(HOSTILE[:20])
    expect(page.locator("#members-rows tr")).to_have_count(1)
    page.get_by_label("Find a member by name").fill("<b>nobody")
    expect(page.get_by_text("No member has “<b>nobody” in its name.")).to_be_visible()
    assert images.count() == 1


def test_members_come_in_pages(page: Page, hub: HubProcess) -> None:
    site = Site(hub, "many", *(f"member-{i:02}" for i in range(60)))
    look(page, site)
    rows = page.locator("#members-rows tr")
    expect(rows).to_have_count(50)
    expect(page.get_by_text("1–50 of 60")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51–60 of 60")).to_be_visible()
    expect(rows.first).to_contain_text("member-50")
    expect(page.get_by_role("button", name="Next")).to_be_disabled()
    page.get_by_label("Find a member by name").fill("-3")
    expect(rows).to_have_count(10)
    page.get_by_role("button", name="Last seen").click()
    head = page.get_by_role("columnheader", name="Last seen")
    expect(head).to_have_attribute("aria-sort", "descending")


def test_everything_can_be_done_with_the_keyboard(page: Page, site: Site) -> None:
    page.goto(site.hub.address)
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    page.keyboard.type(site.hub.operator)
    page.keyboard.press("Enter")
    page.goto(f"{site.hub.address}/#/{site.name}")
    expect(row(page, "alpha")).to_be_visible()
    page.reload()
    expect(row(page, "alpha")).to_be_visible()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    assert skip.bounding_box()["x"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="All federations")).to_be_focused()
    page.keyboard.press("Tab")
    invite = page.get_by_role("button", name="Invite…")
    expect(invite).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Members who may use it")).to_be_focused()
    page.keyboard.press("Escape")
    expect(invite).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("option", name=re.compile("^alpha,"))).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("option", name=re.compile("^beta,"))).to_be_focused()
    expect(page.locator("#map-detail")).to_contain_text("beta: 20 trials; most alike: alpha")
    page.keyboard.press("End")
    expect(page.get_by_role("option", name=re.compile("^gamma,"))).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_text("The same as a table").first).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="7 days")).to_be_checked()
    reached = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert {"Manage alpha", "Manage delta", "Events, latest first"} <= reached


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_and_can_be_read(
    browser: Browser, hub: HubProcess, width: int, scheme: str
) -> None:
    """No view scrolls sideways, text has contrast, and axe finds nothing."""
    from axe_playwright_python.sync_playwright import Axe

    site = Site(hub, f"{'w' * 50}-{width}-{scheme}", "alpha", LONG, "beta", HOSTILE)
    for name in site.tokens:
        site.publish(name, seed=1)
    site.ask("PUT", "progress", LONG, json=dict(sender=LONG, trials=20, best=0.9, saved=7.0))
    with begin(hub.engine) as connection:
        admin.revoke(connection, site.name, "beta", actor=admin.COMMAND_LINE)
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    watch = Watch(context, hub.address)
    page = context.new_page()

    def check(what: str) -> None:
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) == 0, what
        assert page.evaluate(_CONTRAST) == [], what
        assert Axe().run(page).generate_report() == "Found 0 accessibility violations:\n", what

    page.goto(hub.address)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    check("log-in")
    log_in(page, hub, hub.operator)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    check("home")
    page.goto(f"{hub.address}/#/{site.name}")
    expect(row(page, "alpha")).to_be_visible()
    for summary in page.locator("summary").all():
        summary.click()
    check("federation")
    page.get_by_role("button", name="Invite…").click()
    check("invite")
    page.get_by_role("button", name="Make the invitation").click()
    expect(page.get_by_label("Invitation", exact=True)).to_be_visible()
    check("invitation")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name=f"Manage {LONG}").click()
    check("manage")
    context.close()
    assert watch.faults == []


#: Finds texts whose contrast with what is behind them is below 4.5.
_CONTRAST = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(node).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const words = walker.currentNode.data.trim();
    if (!words || !node.checkVisibility() || node.closest(":disabled")) continue;
    const style = getComputedStyle(node);
    const colour = node.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(parse(colour).slice(0, 3)), light(behind(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${contrast.toFixed(2)} ${words}`);
  }
  return found;
}"""


def test_a_private_federation_shows_releases_and_no_map(page: Page, hub: HubProcess) -> None:
    from axe_playwright_python.sync_playwright import Axe

    agreed = federation()
    site = Site(hub, "private", *MEMBERS, agreed=agreed)
    headers = {"Content-Type": MEDIA_TYPE}
    for name in MEMBERS:
        content = contribution(agreed, name).encode()
        site.ask("PUT", "messages", name, content=content, headers=headers)
    look(page, site)
    card = page.get_by_role("region", name="Private releases")
    expect(card).to_contain_text("0 of 2 planned releases were made.")
    expect(card).to_contain_text("4 members have contributed from 3 trials or more.")
    with begin(hub.engine) as connection:
        admin.make_release(connection, site.name, actor=admin.COMMAND_LINE)
    expect(card).to_contain_text("1 of 2 planned releases was made, the last one just now.")
    expect(card).to_contain_text(re.compile(r"So far they cost each member ε = [01]\.\d+\."))
    expect(card).to_contain_text("All planned ones cost at most ε = 2, with δ = 0.001.")
    events = page.get_by_role("group", name="Events, latest first")
    expect(events).to_contain_text("command line made release 1 of 4 members")
    for hidden in ("Who resembles whom", "Progress"):
        expect(page.get_by_role("heading", name=hidden)).to_be_hidden()
    assert Axe().run(page).generate_report() == "Found 0 accessibility violations:\n"


def test_the_documentation_of_the_api_is_served_from_here(page: Page, hub: HubProcess) -> None:
    page.goto(f"{hub.address}/docs")
    expect(page.get_by_role("heading", name="fedbo hub")).to_be_visible()
    operation = page.locator("#operations-page-overview")
    expect(operation).to_be_visible()
    operation.get_by_role("button").first.click()
    expect(operation.get_by_text("Return all that the page shows")).to_be_visible()
