"""A trained model as one HTML file, which runs it in the browser without a server.

The file has the weights (float16), the scripts of ui/static/engine and ui/static/export as one
module, and a policy that allows nothing but them. docs/engine.md describes the engine.
"""

import base64
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import cached_manifest
from playground.checkpoints.metrics import read_metrics
from playground.checkpoints.tensors import serialize_tensors
from playground.common.env import PAGE_MARK, playground_url
from playground.common.format import format_count, source_hash
from playground.errors import UserError
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.runs.browser_model import MAX_PARAMETERS, NUM_EXAMPLES, describe_model
from playground.runs.metric_series import MetricSeries
from playground.tasks import TASKS
from playground.tasks.specs import DEFAULT_SPEC

MIN_EXACT_MATCH_FOR_FLOAT16 = 0.9  # below, rounded weights change some outputs
MAX_CURVE_POINTS = 200
STATIC = Path(str(files("playground.ui") / "static"))
TEMPLATES = Path(__file__).parent / "templates"
STYLES = (
    "shared/theme.css",
    "shell/reset.css",
    "shared/common.css",
    "shared/components.css",
    "shared/diagram/diagram.css",
    "export/page.css",
)
ARCHITECTURE_NAMES = {
    "transformer": "An encoder-decoder transformer",
    "decoder-only": "A decoder-only transformer",
    "encoder-only": "An encoder-only transformer",
}
_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_EXPORT_LIST = re.compile(r"export\s*\{([^}]*)\};?\s*$")
_COMMENT = re.compile(r"/\*\*.*?\*/", re.DOTALL)  # types in it have the form import("file")
_LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*|\bimport\s*[(.].*", re.MULTILINE)


def render_page(checkpoint: str, run: str, name: str, file_name: str) -> dict[str, bytes]:
    """Return {"json": body of the response}: the call of the app, in a process of its own."""
    torch.set_num_threads(1)
    text = write_page(Path(checkpoint), Path(run) if run else None, name)
    return {"json": json.dumps({"html": text, "name": file_name}).encode()}


def write_page(checkpoint: Path, run_folder: Path | None = None, name: str = "") -> str:
    """Return the page of a checkpoint as HTML. Raises UserError if the browser cannot run it."""
    subject = load_inspected_model(checkpoint)
    architecture = subject.config.architecture
    if architecture not in ARCHITECTURE_NAMES:
        *others, last = (ARCHITECTURES[name].title for name in ARCHITECTURE_NAMES)
        raise UserError(
            f"a page runs models of the architecture {', '.join(others)} or {last}, not "
            f"{ARCHITECTURES[architecture].title}; choose another model"
        )
    if not subject.config.task.predict_eos:
        raise UserError(
            "this model was trained without EOS, so a page cannot find where its output ends; "
            "choose a model with Predict EOS"
        )
    parameters = parameter_count(subject.config.model)
    if parameters > MAX_PARAMETERS:
        raise UserError(
            f"the model has {parameters:,} parameters; a page has at most {MAX_PARAMETERS:,}; "
            "choose a smaller model"
        )
    style = "\n".join((STATIC / path).read_text(encoding="utf-8") for path in STYLES)
    script = bundle_modules(STATIC / "export" / "page.js")
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    data = json.dumps(_page_data(subject), separators=(",", ":"), allow_nan=False)
    return (
        template_environment()
        .get_template("interactive_page.html.j2")
        .render(
            mark=PAGE_MARK,
            policy=policy,
            style=style,
            script=script,
            name=name or checkpoint.name,
            architecture=ARCHITECTURE_NAMES[architecture],
            parameters=format_count(parameters, "parameter"),
            rule=TASKS.get(subject.config.task.task, DEFAULT_SPEC).description,
            curve=_curve(run_folder or checkpoint, cached_manifest(checkpoint).step),
            url=playground_url(),
            data=data.replace("<", "\\u003c"),
            weights=_pack_weights(subject),
        )
    )


def template_environment() -> Environment:
    """Return the settings of the templates of this package."""
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page_data(subject: InspectedModel) -> dict[str, Any]:
    content, vocabulary = describe_model(subject), subject.task.vocabulary
    by_length = sorted(content["examples"], key=lambda example: len(example["source"]))
    median = by_length[len(by_length) // 2]
    return content | {
        "accepts": vocabulary.describe(),
        "input": " ".join(vocabulary.decode(median["source"])),
    }


def _curve(run_folder: Path, last_step: int) -> list[tuple[int, float]]:
    """Return step and exact match of the evaluations of a run up to a step, if it stored them."""
    series = MetricSeries(read_metrics(run_folder, last_step))
    return [(row[0], row[1]) for row in series.downsampled(MAX_CURVE_POINTS)["evaluations"]]


def _pack_weights(subject: InspectedModel) -> str:
    """Return the weights in base64: float16, if rounding them changes no output that matters."""
    weights = subject.model.state_dict()
    halves = {name: tensor.half() for name, tensor in weights.items()}
    batch = subject.held_out(NUM_EXAMPLES).batch
    is_trained = subject.model.is_exact_match(batch).float().mean() >= MIN_EXACT_MATCH_FOR_FLOAT16
    if is_trained and all(tensor.isfinite().all() for tensor in halves.values()):
        weights = halves
    return base64.b64encode(serialize_tensors(weights)).decode()


def bundle_modules(entry: Path) -> str:
    """Join a module and all that it imports, each as a function that returns its exports."""
    parts: dict[Path, str] = {}
    exports: dict[Path, list[str]] = {}

    def add(path: Path) -> None:
        if path in exports:
            return
        code = path.read_text(encoding="utf-8")
        exports[path] = _exported_names(code)
        code = _IMPORT.sub(lambda match: bind(path, match), code)
        code = _EXPORT_LIST.sub("", _EXPORT.sub(r"\1", code))
        if left := _LEFT_OVER.search(_COMMENT.sub("", code)):
            raise ValueError(f"{path.name} has an unknown form: {left[0][:80]}")
        if "</script" in code or "<!--" in code:
            raise ValueError(f"{path.name} has a text that ends or hides a script in HTML")
        parts[path] = (
            f"// {path.relative_to(STATIC)}\nconst {_variable(path)} = (() => {{\n{code}\n"
            f"return {{ {', '.join(exports[path])} }};\n}})();\n"
        )

    def bind(importer: Path, match: re.Match[str]) -> str:
        target = (importer.parent / match[2]).resolve()
        add(target)
        names = [each.split(" as ") for each in " ".join(match[1].split()).strip(", ").split(", ")]
        known = {entry.partition(":")[0] for entry in exports[target]}
        if unknown := [name for name, *_ in names if name not in known]:
            raise ValueError(f"{importer.name}: {target.name} does not export {unknown}")
        bound = ", ".join(": ".join(each) for each in names)
        return f"const {{ {bound} }} = {_variable(target)};\n"

    add(entry.resolve())
    return "\n".join(parts.values())


def _variable(path: Path) -> str:
    return "module_" + re.sub(r"\W", "_", str(path.relative_to(STATIC)))


def _exported_names(code: str) -> list[str]:
    """Return the entries of the object of exports: a name, or `name: value`."""
    names = [match[2] for match in _EXPORT.finditer(code)]
    if listed := _EXPORT_LIST.search(code):
        pairs = [each.strip().split(" as ") for each in listed[1].split(",")]
        names += [": ".join(reversed(pair)) for pair in pairs]
    return names
