"""User-supplied text in a real browser: every page shows it as text, and no markup in it runs.

A payload that ran would call `pwn(number)` or send a request to /pwned-number. A page shows all
payloads at once where they fit. Each test also finds their exact text on the page, so that a page
that shows nothing does not pass.
"""

import json
import random
import re
import shutil
from itertools import chain
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import expect

from playground.checkpoints.checkpoint import save_checkpoint
from playground.datasets.pair_builder import read_pairs
from playground.datasets.storage import store
from playground.experiments.service import ExperimentService
from playground.figures.figures import write
from playground.runs.owner_keys import machine_owner_key
from playground.runs.registry import Registry
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import AppServer, wait_for
from tests.support.browser_page import INSPECT_SECTIONS, go_to_experiments, open_section, wait_until
from tests.support.fake_hub import FakeHub
from tests.support.small_runs import TINY_SETTINGS

# Each is a valid symbol of a dataset: at most 40 characters, without spaces.
PAYLOADS = [
    payload.replace("pwn()", f"pwn({number})").replace("/pwned", f"/pwned-{number}")
    for number, payload in enumerate(
        [
            "<script>pwn()</script>",
            "<img/src=x/onerror=pwn()>",
            "<svg/onload=pwn()>",
            "</script><script>pwn()</script>",
            "</title><svg/onload=pwn()>",
            "</textarea><svg/onload=pwn()>",
            '"><svg/onload=pwn()>',
            "'><svg/onload=pwn()>",
            '"/onfocus=pwn()/autofocus="',
            "'/onmouseover=pwn()/x='",
            "[x](javascript:pwn())",
            "![x](/pwned)",
            "<javascript:pwn()>",
            "javascript:pwn()//",
            "${pwn()}",
            "`${pwn()}`",
            "{{pwn()}}",
            "&lt;svg/onload=pwn()&gt;",
            "&#60;svg/onload=pwn()&#62;",
            r"\u003csvg/onload=pwn()\u003e",
            "＜svg/onload=pwn()＞",
            "<ſcript>pwn()</ſcript>",
            "<style>@import'/pwned'</style>",
            "x;background:url(/pwned)",
            "data:text/html,<script>pwn()</script>",
            "<math/href=javascript:pwn()>x</math>",
            "<iframe/srcdoc=<svg/onload=pwn()>>",
            "<object/data=/pwned>",
            "<details/open/ontoggle=pwn()>",
            "<a/href=javascript:pwn()>x</a>",
            "<base/href=/pwned/>",
            "]]><svg/onload=pwn()><![CDATA[",
            "--><svg/onload=pwn()><!--",
            r"$\frac$pwn()$",
            "<link/rel=stylesheet/href=/pwned>",
            "<body/onpageshow=pwn()>",
        ]
    )
]
ALL = " ".join(PAYLOADS)
# two or less in each name, which has at most 80 characters; the first one alone
NAMES = [PAYLOADS[0], *(" ".join(PAYLOADS[i : i + 2]) for i in range(1, len(PAYLOADS), 2))]
RECORD_PAYLOADS = "window.pwned = []; window.pwn = (number) => { window.pwned.push(number); };"
# Finds payloads that became an element or an active attribute, even if they did not run yet.
FIND_ACTIVE_PAYLOADS = """() => [...document.querySelectorAll('*')].filter((element) =>
    [...element.attributes].some(({ name, value }) => /pwn(\\(|ed)/.test(value)
      && (/^on/.test(name) || ['src', 'href', 'xlink:href', 'srcdoc', 'data', 'style', 'action',
        'formaction', 'poster'].includes(name)))
    || (['script', 'style', 'iframe', 'object', 'math'].includes(element.localName)
      && /pwn(\\(|ed)/.test(element.textContent)))
  .map((element) => element.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def hub():
    with FakeHub() as hub:
        yield hub


@pytest.fixture(scope="module")
def app(hub, tmp_path_factory):
    """An app with payloads as names of runs and experiments, and as tokens of a dataset."""
    folder = tmp_path_factory.mktemp("markup")
    root, rng = folder / "checkpoints", random.Random(0)
    registry = Registry(root)
    owner = registry.single_owner = machine_owner_key(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAYGROUND_CHECKPOINTS", str(root))
        texts = [" ".join(rng.choices(PAYLOADS, k=2)) for _ in range(900)] + [
            f"{one} {one}" for one in PAYLOADS
        ]
        rows = read_pairs(
            lambda: enumerate(((text, text) for text in dict.fromkeys(texts)), start=1),
            split_on_spaces=True,
        )
        store(rows)
        trainer = Trainer(
            RunConfig.from_flat(
                TINY_SETTINGS | {"max_length": 2, "max_steps": 2} | rows.task_settings()
            )
        )
        lines = [trainer.train_step()]
        save_checkpoint(folder / "trained", trainer, lines)
    for name in NAMES:
        registry.import_checkpoint(
            shutil.copytree(folder / "trained", folder / "copy"), owner, name
        )
    registry.settings.slots = 0  # so that experiments wait and do not train
    experiments = ExperimentService(registry)
    experiments.close()
    for name in NAMES:
        experiments.start(
            {"name": name, "grid": {"n_layers": [1, 2]}, "base": {"max_steps": 1}, "seeds": [0]},
            owner,
        )
    registry.shutdown()
    server = AppServer(folder, **hub.environment(folder / "hf", token=hub.OWNER))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def window(app, browser):
    """The page of all tests, and the requests that it sent."""
    context = browser.new_context(viewport={"width": 1440, "height": 950}, reduced_motion="reduce")
    context.add_init_script(RECORD_PAYLOADS)
    page, requested = context.new_page(), []
    page.set_default_timeout(180_000)
    page.on("request", lambda request: requested.append(request.url))
    page.on("dialog", lambda dialog: dialog.dismiss())
    yield page, requested
    context.close()


@pytest.fixture
def page(app, window):
    """The page after loading; no payload has run at the end of the test."""
    page, requested = window
    page.goto(app.url)
    page.wait_for_selector(".runs .run", state="attached")
    page.get_by_role(
        "tab", name="Train", exact=True
    ).click()  # the page returns to the tab that was open last
    yield page
    page.mouse.move(700, 500)
    assert page.evaluate("window.pwned") == []
    assert [url for url in requested if re.search(r"/pwned-\d+(/|$)", urlsplit(url).path)] == []
    assert page.evaluate(FIND_ACTIVE_PAYLOADS) == []
    expect(page).to_have_title("Transformer Playground")


def rendered(page, selector):
    """Return the payloads whose exact text is in these elements or in their values."""
    text = page.eval_on_selector_all(
        selector,
        "all => all.map((each) => (each.localName !== 'option' && each.value) || "
        "each.textContent).join('\\n')",
    )
    return [payload for payload in PAYLOADS if payload in text]


def wait_for_all(page, selector, but=0):
    script = """([selector, all, but]) => {
        const text = [...document.querySelectorAll(selector)]
          .map((each) => (each.localName !== 'option' && each.value) || each.textContent)
          .join('\\n');
        return all.filter((each) => !text.includes(each)).length <= but; }"""
    wait_until(page, script, arg=[selector, PAYLOADS, but])


def test_names_symbols_and_errors_on_the_train_tab(page):
    wait_for_all(page, ".runs .name")
    wait_for_all(page, ".subject option")
    page.locator(".runs .name").first.click()
    wait_until(page, "/pwn/.test(document.querySelector('.live .samples').textContent)")
    assert rendered(page, ".live .samples")
    note = page.locator(".live .diagram-note")

    def selects_a_row():
        """Press a key; drawing the clicked run may reset the selection meanwhile."""
        page.focus(".live .diagram-canvas")
        page.keyboard.press("ArrowDown")
        return "attends to" in note.text_content()

    wait_for(selects_a_row, description="a selected row")
    assert rendered(page, ".live .diagram-note")
    page.fill(".page-bar .sequence", " ".join(PAYLOADS[:2]))
    wait_until(page, "/pwn/.test(document.querySelector('.live .answer').textContent)")
    page.fill(".page-bar .sequence", PAYLOADS[1] + "x")
    expect(page.locator(".live .try-note")).to_contain_text(PAYLOADS[1])
    for box in page.locator(".runs .plot-run:enabled").all()[:3]:
        box.check()
    expect(page.locator(".runs .plot-run:checked")).to_have_count(4)
    page.click(".share")
    wait_until(page, "document.querySelector('dialog.sharing[open] .settings-link')?.value")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.sharing[open]")).to_have_count(0)
    page.set_input_files(
        ".runs .file", {"name": ALL + ".zip", "mimeType": "application/zip", "buffer": b"none"}
    )
    wait_until(page, "/was rejected/.test(document.querySelector('.runs-note').textContent)")
    assert rendered(page, ".runs-note") == PAYLOADS
    row = page.locator(".runs .run").nth(1)
    name = row.locator(".name").text_content()
    row.locator("summary").click()
    row.locator("[data-action=delete]").click()
    expect(page.locator(".undo")).to_contain_text(name)


def test_markup_in_a_link_is_text(page, app):
    for expected, text_rendered in (
        ({ALL: 1}, "is not a setting of a run"),
        ({"task": ALL}, "choose one of"),
        ({"architecture": ALL}, "choose one of"),
    ):
        query = f"settings={quote(json.dumps(expected))}&watch={quote(ALL)}&section={quote(ALL)}"
        page.goto(f"{app.url}/?{query}")
        expect(page.locator("#problem")).to_contain_text(text_rendered)
        assert rendered(page, "#problem")
    page.goto(f"{app.url}/?settings={quote(ALL)}#{quote(ALL)}")
    expect(page.locator("#problem")).to_contain_text("ignores the settings")


def test_markup_in_a_dataset_is_text(page):
    page.wait_for_selector(".live:not([data-status=opening])")
    page.select_option("#field-task select", "dataset")
    expect(page.locator(".dataset-panel")).to_be_visible()
    lines = "\n".join(f"{one} {other}\t{other}" for one in PAYLOADS for other in PAYLOADS[:9])
    page.fill(".dataset-panel [name=text]", lines + f"\n{'y' * 40}{PAYLOADS[2]}\tx")
    expect(page.locator(".dataset-panel .left-out")).to_contain_text("is the start of a token")
    page.fill(".dataset-panel [name=text]", lines)
    expect(page.locator(".dataset-panel .use")).to_be_enabled()
    assert rendered(page, ".dataset-panel .preview")
    page.get_by_role("button", name="File", exact=False).first.click()
    table = f"{PAYLOADS[1]},{PAYLOADS[2]},{PAYLOADS[8]}\n1,2,3\n4,5,6\n"
    page.set_input_files(
        ".dataset-panel .file",
        {"name": ALL + ".csv", "mimeType": "text/csv", "buffer": table.encode()},
    )
    expect(page.locator(".dataset-panel .table-columns")).to_be_visible()
    wait = (
        "([text]) => [...document.querySelectorAll('.dataset-panel .table-columns option')]"
        ".some((each) => each.value === text)"
    )
    wait_until(page, wait, arg=[PAYLOADS[1]])


def test_every_view_of_inspect(page):
    page.get_by_role("tab", name="Inspect").click()
    page.wait_for_selector(".inspect[data-drawn]")
    page.select_option(".page-bar .subject", label=PAYLOADS[0])
    text = f"{PAYLOADS[1]} {PAYLOADS[1]}"  # one of its rows
    page.fill(".page-bar .sequence", text)
    wait_until(
        page, "text => document.querySelector('.inspect').dataset.drawn.endsWith(text)", arg=text
    )
    for name in chain.from_iterable(INSPECT_SECTIONS.values()):
        open_section(page, name)
        assert page.evaluate(FIND_ACTIVE_PAYLOADS) == [], name
    assert rendered(page, ".inspect .answer, .inspect .stage")
    page.fill(".page-bar .sequence", PAYLOADS[1] + "x")
    expect(page.locator(".inspect .problem")).to_contain_text(PAYLOADS[1])


def test_names_of_models_in_compare(page):
    page.get_by_role("tab", name="Compare").click()
    page.select_option(".page-bar .subject", label=PAYLOADS[0])
    page.get_by_role("tab", name="Benchmark", exact=True).click()
    for name in PAYLOADS[1:4]:
        page.fill(".add-model input", name)
        page.press(".add-model input", "Enter")
        expect(page.locator(".add-model .pg-error")).to_contain_text(
            f"{name[:80]} is no model name"
        )
    assert rendered(page, ".of-benchmark")


def test_names_and_values_of_experiments(page):
    go_to_experiments(page)
    wait_for_all(page, ".experiments .open-it")
    page.click(".own > summary")
    page.select_option(".own .setting-0", "d_model")
    page.fill(".own .values-0", f"{PAYLOADS[1]}, {PAYLOADS[8]}")
    page.fill(".own .name", PAYLOADS[2])
    expect(page.locator(".own .pg-error").first).to_contain_text(PAYLOADS[1])
    page.locator(".experiments .open-it").first.click()
    expect(page.locator(".results .experiment-result")).to_be_visible()
    wait_for_all(page, ".results", but=len(PAYLOADS) - 1)


def test_repositories_and_cards_of_the_hub(page, hub):
    for number, payload in enumerate(PAYLOADS):
        card = (
            "---\ntags: [transformer-playground]\nplayground:\n  task: "
            f"{json.dumps(payload)}\n---\n{payload}\n"
        )
        hub.put(
            f"cy/hostile-{number}",
            {
                "README.md": card.encode(),
                "playground.json": payload.encode(),
                "model.safetensors": b"x",
            },
        )
    page.get_by_role("tab", name="Hub").click()
    page.wait_for_selector(".hub .session-text:not(:empty)")
    page.click(".hub .refresh-gallery")
    wait_for_all(page, ".hub .models td")
    page.fill(".hub .any-repo", PAYLOADS[1])
    page.keyboard.press("Enter")
    expect(page.locator(".hub .opened-note")).to_contain_text("is not the name of a repository")
    assert rendered(page, ".hub .opened-note")
    page.select_option(".hub .model", label=PAYLOADS[0])
    page.fill(".hub .repo", "owner/hostile")
    page.click(".hub .preview-push")
    page.wait_for_selector(".hub .plan:not([hidden])")
    assert rendered(page, ".hub .card-preview pre")
    page.click(".hub .publish-button")
    page.wait_for_selector(".hub .published:not([hidden])")
    page.fill(".hub .any-repo", "owner/hostile")
    page.keyboard.press("Enter")
    expect(page.locator(".hub .repository-summary")).not_to_be_empty()


@pytest.mark.filterwarnings("ignore:Glyph")  # no font has them all
def test_figures_that_are_exported(page, app, tmp_path):
    """As SVG they open in a browser.

    A symbol between two dollar signs is no formula, and draws in every format.
    """
    dollars = next(payload for payload in PAYLOADS if payload.startswith("$\\frac"))
    # of more, not every one is written beside its row
    few = [dollars, *(each for each in PAYLOADS if each != dollars)][:12]
    rest, n = [each for each in PAYLOADS if each not in few][:12], 12
    grids = [
        {
            "kind": "encoder",
            "title": "encoder attention",
            "rows": some,
            "columns": some,
            "weights": [[[[1 / n] * n] * n]],
            "possible": [[True] * n] * n,
        }
        for some in (few, rest)
    ]
    for data in grids:
        write(tmp_path, "encoder-attention", data)
        picture = (tmp_path / "encoder-attention.svg").read_bytes()
        # as a comment beside its letters, which are drawn
        assert (dollars.encode() in picture) == (data is not grids[1])
        page.route(
            "**/exported.svg",
            lambda route, *, body=picture: route.fulfill(body=body, content_type="image/svg+xml"),
        )
        page.goto(f"{app.url}/exported.svg")
        assert page.evaluate("document.documentElement.localName") == "svg"
        assert page.evaluate("window.pwned") == []
        assert page.evaluate(FIND_ACTIVE_PAYLOADS) == []
        page.unroute("**/exported.svg")
    page.goto(app.url)
