"""Logging in and out, and a session that ends."""

from __future__ import annotations

from tests.page.browser import View


def test_a_wrong_password_shows_the_brokers_text_and_a_right_one_lets_in(stranger: View) -> None:
    stranger.page.goto(stranger.base)
    stranger.page.get_by_label("User", exact=True).fill("guest")
    stranger.page.get_by_label("Password", exact=True).fill("wrong")
    stranger.press("Log in")
    stranger.page.locator("form [role=alert]").wait_for()
    stranger.page.get_by_label("Password", exact=True).fill("guest")
    stranger.press("Log in")
    stranger.heading("Overview")


def test_an_ended_session_asks_again_and_comes_back_to_the_same_page(view: View) -> None:
    view.allowed.add(401)
    view.go("#/exchanges")
    view.heading("Exchanges")
    view.page.context.clear_cookies()
    view.go("#/users")
    view.told("The session has ended")
    view.page.get_by_label("User", exact=True).fill("guest")
    view.page.get_by_label("Password", exact=True).fill("guest")
    view.press("Log in")
    view.heading("Users")


def test_who_logs_out_is_out_after_a_reload(view: View) -> None:
    view.allowed.add(401)
    view.press("User guest")
    view.page.get_by_role("menuitem", name="Log out").click()
    view.page.get_by_label("Password", exact=True).wait_for()
    view.page.reload()
    view.page.get_by_label("Password", exact=True).wait_for()


def test_an_address_that_changes_as_the_pages_come_up_is_followed(stranger: View) -> None:
    """A script, or a test on a busy machine, goes on in the moment in which the menu is there."""
    stranger.allowed.add(401)
    stranger.page.goto(stranger.base)
    stranger.page.get_by_label("Password", exact=True).wait_for()
    stranger.page.evaluate("""() => {
        const watch = new MutationObserver(() => {
            if (!document.querySelector("header nav")) return;
            watch.disconnect();
            location.hash = "#/exchanges";
        });
        watch.observe(document.body, { childList: true, subtree: true });
    }""")
    stranger.page.get_by_label("User", exact=True).fill("guest")
    stranger.page.get_by_label("Password", exact=True).fill("guest")
    stranger.press("Log in")
    stranger.heading("Exchanges")
