"""The ES modules of the page, and their stylesheets."""

import re

import pytest

from playground.ui.page import FIRST_STYLES, STATIC_DIR, content_version, module_graph, read_static

MODULES = sorted(
    path.relative_to(STATIC_DIR).as_posix()
    for path in STATIC_DIR.rglob("*.js")
    if "vendor" not in path.parts
)
STYLESHEETS = sorted(path.relative_to(STATIC_DIR).as_posix() for path in STATIC_DIR.rglob("*.css"))
ENTRIES = ["shell/page.js", *(module for module in MODULES if module.endswith("/main.js"))]


@pytest.mark.parametrize("module", MODULES)
def test_no_script_parses_text_as_markup_or_code(module):
    """Names come from other users, so the page inserts them as text."""
    actual = re.findall(
        r"\b(dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|"
        r"new Function|srcdoc)\b",
        (STATIC_DIR / module).read_text(),
    )
    assert actual == []


@pytest.mark.parametrize("module", MODULES)
def test_every_import_names_an_export_of_a_file(module):
    """A missing name would leave a tab empty."""
    text = (STATIC_DIR / module).read_text()
    imports = re.findall(r'^import \{([^}]*)\} from "([^"]+)";', text, re.M)
    for names, path in imports:
        assert path.startswith("."), "a path relative to the module; there is no import map"
        target = (STATIC_DIR / module).parent / path
        if "vendor" in target.parts:
            continue
        source = target.read_text()
        lists = re.findall(r"^export (?:const )?\{([^}]*)\}", source, re.M)
        exported = {re.split(r" as |: ", each)[-1].strip() for each in ",".join(lists).split(",")}
        exported |= set(
            re.findall(r"^export (?:async )?(?:function\*?|const|class) ([\w$]+)", source, re.M)
        )
        exported |= set(re.findall(r"^  (\w+) = ", source, re.M))  # further names of one const
        assert {each.split(" as ")[0].strip() for each in names.split(",")} - {""} <= exported


def test_every_module_of_a_tab_belongs_to_an_entry():
    # a module that another one loads with `import()` has the folder of that module
    lazy = {
        f"{module.rpartition('/')[0]}/{name}"
        for module in MODULES
        for name in re.findall(r'(?:=> |\[)import\("\./([^"]+)"\)', read_static(module))
    }
    others = ("export/page.js", "shared/model_worker.js")
    used = set(module_graph(*ENTRIES, *others, *lazy)) | {"shell/first.js"}
    assert not lazy & set(module_graph(*ENTRIES))
    assert len(ENTRIES) >= 6
    assert {each for each in MODULES if not each.startswith("shared/")} <= used


def test_every_stylesheet_of_a_tab_is_loaded_by_a_module_beside_it():
    for name in sorted({*STYLESHEETS} - {*FIRST_STYLES}):
        path = STATIC_DIR / name
        if path.parent.name not in ("shared", "vendor", "export"):
            tab, inside = name.split("/", 1)
            texts = [module.read_text() for module in (STATIC_DIR / tab).glob("*.js")]
            assert any(f'new URL("./{inside}", import.meta.url)' in text for text in texts), name


def test_version_changes_with_every_file(tmp_path):
    versions = [content_version(tmp_path)]
    for name, content in (("a.js", "1"), ("a.js", "2"), ("b.js", ""), ("c/d.css", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        versions.append(content_version(tmp_path))
    (tmp_path / "b.js").rename(tmp_path / "e.js")
    versions.append(content_version(tmp_path))
    assert len(set(versions)) == len(versions)
    assert content_version(tmp_path) == versions[-1]
