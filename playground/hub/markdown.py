"""Markdown of the cards: their templates, and filters that make any text safe in them."""

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from playground.common.format import format_count
from playground.tasks.task import Task
from playground.tasks.vocabulary import INVISIBLE, format_token
from playground.training.task_config import TaskConfig

TEMPLATES = Path(__file__).with_name("templates")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def render_card(template: str, facts: dict[str, Any]) -> str:
    """Return the text of a template in templates/.

    The filters `md` and `code` escape; a template applies one of them to every untrusted text.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # HTML entities are wrong in Markdown code
    )
    environment.filters |= {
        "md": escape,
        "code": format_code,
        "code_cell": lambda text: format_code(text, in_table=True),
        "cell": lambda text: format_code(text, in_table=True) if text else "(empty)",
        "python": format_literal,
        "tokens": show_tokens,
        "paragraph": join_lines,
        "row": lambda cells: f"| {' | '.join(cells)} |",
        "percent": format_percent,
        "range_percent": lambda ends: f"{100 * ends[0]:.1f}–{100 * ends[1]:.1f} %",
        "count": format_count,
        "thousands": lambda n: f"{n:,}",
        "dataset_link": lambda name: f"[{escape(name)}](https://huggingface.co/datasets/{name})",
    }
    return environment.get_template(template).render(facts)


def escape(text: str) -> str:
    """Escape untrusted text as Markdown without markup, HTML or invisible characters."""
    visible = show_tokens(re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", " ", text)).strip()
    escaped = "".join(
        ENTITIES.get(character) or (f"\\{character}" if character in "\\`*_[]!~|$" else character)
        for character in visible
    )
    # These characters would begin a heading, a list or a rule.
    return re.sub(r"^(\d*)([-+=#]|[.)](?=\s|$))", r"\1\\\2", escaped)


def format_code(text: str, *, in_table: bool = False) -> str:
    """Format any text as Markdown code."""
    text = show_tokens(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text[:1] == "`" or text[-1:] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|" if in_table else "|")


def format_literal(text: str) -> str:
    """Format any text as a literal of Python, with escapes for invisible characters."""
    literal = json.dumps(text, ensure_ascii=False)
    return INVISIBLE.sub(lambda match: f"\\U{ord(match[0]):08x}", literal)


def show_tokens(text: str) -> str:
    """Replace the invisible characters of tokens that are separated by spaces."""
    return " ".join(map(format_token, text.split(" ")))


def join_lines(text: str) -> str:
    """Join the lines of a template to one line, which is one paragraph of Markdown."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip()) + "\n"


def format_percent(fraction: float) -> str:
    """Format a fraction in percent; only 1 gives 100.00 %, and only 0 gives 0.00 %."""
    text = f"{100 * fraction:.2f}"
    if text == "100.00" and fraction < 1:
        return "over 99.99 %"
    return "under 0.01 %" if text == "0.00" and fraction > 0 else f"{text} %"


def format_tokens(task: Task, tokens: list[int]) -> str:
    """Return the tokens of a sequence up to its EOS."""
    return " ".join(task.vocabulary.decode(tokens))


def format_lengths(task: TaskConfig) -> str:
    """Return the lengths of the sequences of a task, as in "1 to 10"."""
    low, high = task.min_length, task.max_length
    return f"{low} to {high}" if low < high else f"{high}"
