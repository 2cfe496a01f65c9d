import pytest

from playground.hub.existing_card import ExistingCard, read_existing_card
from playground.hub.model_card import write_card

GPL = {"license": "gpl-3.0"}


@pytest.mark.parametrize(
    ("content", "license", "is_handwritten"),
    [
        ("", {}, False),
        ("\n  \n", {}, False),
        ("---\n---\n", {}, False),
        ("---\nlicense: gpl-3.0\n---\n", GPL, False),
        ("\ufeff---\r\nlicense: gpl-3.0\r\n---\r\n", GPL, False),
        ("---\nlicense: [mit, gpl-3.0]\n---\n", {"license": ["mit", "gpl-3.0"]}, False),
        (
            "---\nlicense: other\nlicense_name: mine\nlicense_link: LICENSE.md\n---\n",
            {"license": "other", "license_name": "mine", "license_link": "LICENSE.md"},
            False,
        ),
        ("---\nlicense: 5\n---\n", {}, False),
        ("---\nlicense: gpl-3.0\nlanguage: he\n---\n", GPL, True),
        ("---\nlicense: gpl-3.0\n---\nMy model.\n", GPL, True),
        ("# My model\n", {}, True),
        ("---\nlicense: [gpl-3.0\n---\n", {}, True),
        ("---\n- gpl-3.0\n---\n", {}, True),
        ("---\na: &a [x]\nb: *a\n---\n", {}, True),
        ("---\nlicense: gpl-3.0\n", {}, True),  # it has no end
        ("---\nlicense: gpl-3.0\nplayground: {task: reverse, step: 5}\n---\nText\n", GPL, False),
        (
            "---\nlicense: gpl-3.0\nplayground: {digest: 5, d: 2020-01-01}\n2020-01-01: 3\n---\n",
            GPL,
            True,
        ),
        ("---\nplayground: {digest: a, 5: 1, b: 2}\n---\n", {}, True),
        (f"---\nplayground: {{digest: a, n: 0x{'f' * 5000}}}\n---\n", {}, True),
    ],
)
def test_what_the_owner_of_a_repository_wrote_is_recognized(content, license, is_handwritten):
    assert read_existing_card(content.encode()) == ExistingCard(license, is_handwritten)


@pytest.fixture
def card(published_files):
    """The card of a published model, as text."""
    return published_files["README.md"].decode()


@pytest.mark.parametrize(
    ("old", "new", "license", "is_handwritten"),
    [
        ("", "", {}, False),
        ("\n", "\r\n", {}, False),
        ("license: mit\n", "license: gpl-3.0\n", GPL, False),
        ("license: mit\n", "", {}, False),
        ("## Limitations", "## My limitations", {}, True),
        ("tags:\n", "tags:\n- mine\n", {}, True),
        ("license: mit\n", "license: mit\nlanguage: he\n", {}, True),
        ("step: 6", "step: 7", {}, True),
    ],
)
def test_an_edit_of_a_published_card_is_recognized(card, old, new, license, is_handwritten):
    assert old in card
    edited = card.replace(old, new) if old == "\n" else card.replace(old, new, 1)
    assert read_existing_card(edited.encode()) == ExistingCard(license, is_handwritten)


@pytest.mark.parametrize(
    ("chosen", "existing", "front", "text"),
    [
        ("", {"license": "gpl-3.0"}, "license: gpl-3.0\n", "gpl-3.0, for the weights."),
        ("cc-by-4.0", {"license": "gpl-3.0"}, "license: cc-by-4.0\n", "cc-by-4.0, for the"),
        (
            "",
            {"license": "other", "license_name": "<b>mine"},
            "license_name: <b>mine\n",
            "&lt;b&gt;mine, for the weights.",
        ),
        ("", {"license": ["mit", "isc"]}, "license:\n- mit\n- isc\n", "mit, isc, for the weights."),
        ("", {}, "license: mit\n", "mit, for the weights."),
    ],
)
def test_the_license_of_the_owner_is_on_the_card(
    trained_checkpoint, tmp_path, chosen, existing, front, text
):
    options = {"license": chosen, "existing": ExistingCard(existing)}
    write_card(tmp_path, trained_checkpoint, repo="ada/digits", **options)
    card = (tmp_path / "README.md").read_text()
    assert front in card
    assert text in card
    owned = {} if "license" in existing and existing["license"] == "mit" else existing
    expected = {"license": chosen} if chosen else owned
    assert read_existing_card(card.encode()) == ExistingCard(expected)
