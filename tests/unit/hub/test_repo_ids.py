"""Names on the Hub: what is accepted is safe in a URL, and accepted by the Hub."""

import posixpath
from urllib.parse import quote

from huggingface_hub.utils import validate_repo_id
from hypothesis import example, given
from hypothesis import strategies as st

from playground.hub.repo_ids import is_repo, is_revision

PARTS = ("ada", "x", "a" * 96, "..", ".", "-", "--", "/", " ", "%2e", ".git", "\n", "ü", "@")
NAMES = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)


@given(NAMES)
@example("ada/digits")
def test_the_hub_accepts_the_names_of_repositories(name):
    if is_repo(name):
        validate_repo_id(name)
        assert name.count("/") == 1
        assert quote(name) == posixpath.normpath(name) == name


@given(NAMES | NAMES.map("refs/".__add__))
def test_a_revision_stays_in_its_place_of_a_path(name):
    if is_revision(name):
        assert quote(name, safe="/@+") == posixpath.normpath(f"/api/{name}")[5:] == name


def test_dots_and_dashes_that_lead_elsewhere_are_rejected():
    assert not any(map(is_repo, ("ada/a..b", "ada/a--b", "ada/digits.git")))
    revisions = ("a/../b", "a//b", "a/.b", "a/", "/a", "a..b")
    assert not any(map(is_revision, revisions))


def test_usual_names_are_accepted():
    assert all(map(is_repo, ("ada/digits", "A-b/c.d_e", "ada/" + "x" * 96)))
    assert all(map(is_revision, ("main", "exp/1", "0" * 40, "refs/pr/1", "a@b")))
