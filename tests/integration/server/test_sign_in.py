"""Sign-in on a Space, with the profile that Gradio has for tests in place of Hugging Face."""

import json
import urllib.request
from http.cookies import SimpleCookie
from urllib.parse import quote

import pytest

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import ROOT, AppServer

PROGRAM = f"""
import sys

sys.path.insert(0, {str(ROOT)!r})
if __name__ == "__main__":
    import gradio.oauth

    gradio.oauth.get_space = lambda: None
    gradio.oauth.get_token = lambda: "hf_ada"
    gradio.oauth.whoami = lambda: {{
        "type": "user", "name": "ada", "fullname": "Ada", "avatarUrl": "https://example.org/a.png"
    }}
    from playground.cli.app import app

    app()
"""
SPACE = {"SPACE_ID": "ada/playground", "SYSTEM": "spaces", "OAUTH_CLIENT_ID": "client"}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """A client that keeps its cookies, also those for HTTPS only."""

    def __init__(self, url):
        self.url, self.cookies = url, {}
        self.opener = urllib.request.build_opener(NoRedirect)

    def send(self, path, body=None):
        """Return the status, the headers and the text of a response."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Cookie": cookie, "Origin": self.url} if body else {"Cookie": cookie}
        data = json.dumps(body).encode() if body else None
        headers |= {"Content-Type": "application/json"} if body else {}
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            response = self.opener.open(request, timeout=60)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            for header in response.headers.get_all("set-cookie", []):
                for name, morsel in SimpleCookie(header).items():
                    assert morsel["secure"]
                    self.cookies[name] = morsel.value
            return response.status, response.headers, response.read().decode()

    def session(self):
        answer = self.send("/playground/api/hub/session", {"owner": new_owner_key()})[2]
        return json.loads(answer)


@pytest.fixture
def browser(tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    app = AppServer(
        tmp_path / "storage", checkout=tmp_path, GRADIO_ANALYTICS_ENABLED="False", **SPACE
    )
    yield Browser(app.url)
    app.stop()


def test_a_user_signs_in_and_out_and_returns_to_the_page(browser):
    assert browser.session() == {
        "method": "oauth",
        "signed_in": False,
        "name": "",
        "lasting": False,
    }
    target = "/?tab=hub&model=checkpoint:copy"
    for link, is_signed_in in (("/login/huggingface", True), ("/logout", False)):
        status, headers, _ = browser.send(f"{link}?_target_url={quote(target, safe='')}")
        while headers["location"].startswith("/login/callback"):
            status, headers, _ = browser.send(headers["location"])
        assert (status // 100, headers["location"]) == (3, target)
        session = browser.session()
        assert session["signed_in"] is is_signed_in
        assert session["name"] == ("ada" if is_signed_in else "")
