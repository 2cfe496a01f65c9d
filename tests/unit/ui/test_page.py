"""The document of the page."""

import base64
import hashlib
import html
import json
import re

from playground.ui.form_schema import form_schema
from playground.ui.page import (
    FIRST_CHECKPOINT,
    FIRST_SCRIPT,
    STATIC_DIR,
    TABS,
    build_page,
    draw_map,
    page_policy,
)

PAGE = build_page({"Docs": "playground/files/README.md"}, "")


def test_only_its_first_script_may_run_inline():
    scripts = re.findall(r"<script>(.*?)</script>", PAGE, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    assert re.findall(r"'sha256-([^']+)'", page_policy(is_frameable=False)) == [
        digest.decode() for digest in digests
    ]
    assert not re.search(r"unsafe-eval|script-src[^;]*unsafe", page_policy(is_frameable=True))


def test_no_text_of_the_form_ends_its_element():
    content = re.search(r'id="form-schema">(.*?)</script>', PAGE, re.DOTALL)[1]
    assert "<" not in content
    assert json.loads(content) == json.loads(json.dumps(form_schema()))


def test_every_file_that_it_names_exists():
    names = re.findall(r'(?:href|src)="playground/static/[^/]+/([^"]+)"', PAGE)
    assert len(names) > 50
    assert [name for name in names if not (STATIC_DIR / name).is_file()] == []
    modules = re.findall(r'rel="modulepreload" href="playground/static/[^/]+/([^"]+)"', PAGE)
    assert modules[0] == "shell/page.js"
    assert {"train/main.js", "shared/view.js"} < set(modules)
    assert not any(module.startswith(("hub/", "compare/")) for module in modules)


def test_its_picture_of_a_model_has_a_map_for_each_head():
    maps = re.findall(r'<span class="head"><svg[^>]*>(.*?)</svg>', PAGE)
    assert len(maps) == 3 * 2 * 4  # kinds of attention, layers, heads
    assert all(maps)
    assert f'"{FIRST_CHECKPOINT}"' in FIRST_SCRIPT  # which hides it for other models
    assert draw_map([1000, 0, 249, 130], 2) == ["M0 1h1v1h-1M1 1h1v1h-1", "", "", "M0 0h1v1h-1"]


def test_every_tab_has_a_panel():
    for name in TABS:
        assert f'id="tab-{name}" aria-controls="panel-{name}"' in PAGE
        assert f'id="panel-{name}" aria-labelledby="tab-{name}"' in PAGE
        assert (STATIC_DIR / name / "main.js").is_file()


def test_a_space_links_its_own_source():
    page = build_page({"Docs": "playground/files/README.md"}, 'ada/"><script>')
    assert "<script>" not in html.unescape(page.partition("<nav")[2].partition("</nav")[0])
    assert "playground/files" not in page
