"""The options of settings and datasets, and messages with their names."""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import click

from playground.models.config_fields import ConfigError
from playground.training.presets import preset_config
from playground.training.run_config import field_named, section_of_field

from .common import option_name, write_examples
from .datasets import READING_OPTIONS

# settings without an option of their name: `train` has other options, or derives them
EXCLUDED_SETTINGS = (
    "task",
    "min_length",
    "max_length",
    "source_vocab_size",
    "target_vocab_size",
    "dataset_sha256",
    "dataset_symbols",
    "max_target_length",
)


def translating_option_names(error: ConfigError, **flags: str) -> str:
    """Return a setting's error message with the option names of the command line.

    Names that are also English words (seed, device) are replaced only if the error is about them,
    at their first occurrence.
    """
    options = (
        {name: option_name(name) for name in section_of_field() if "_" in name}
        | {"max_length": "--length", "dataset_sha256": "--task"}
        | flags
    )
    message = str(error)
    for name in sorted(options, key=len, reverse=True):
        message = re.sub(rf"(?<![\w-]){name}(?!\w)", options[name], message)
    if error.field in options:
        return message
    return message.replace(error.field, option_name(error.field), 1)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every setting of a run; the config validates the values."""
    defaults = preset_config("fast").to_flat()
    for name in reversed([n for n in section_of_field() if n not in EXCLUDED_SETTINGS]):
        field = field_named(name)
        kind = type(field.default)
        help_text = f"{field.metadata['help']} [{defaults.get(name, field.default)}]"
        if kind is bool:
            command = click.option(
                f"{option_name(name)}/--no-{name.replace('_', '-')}",
                name,
                default=None,
                help=help_text,
            )(command)
        else:
            choices = field.metadata["choices"]
            value_type = click.Choice(tuple(choices)) if choices else kind
            command = click.option(
                option_name(name), name, type=value_type, default=None, help=help_text
            )(command)
    return command


class Train(click.Command):
    """A command with its help in sections, because sixty options in one list are hard to search."""

    TITLES: ClassVar = {  # of the sections
        "task": "Task",
        "model": "Model",
        "training": "Training",
        "": "Output and resuming",
    }
    SECTIONS: ClassVar = {  # of options that are not settings
        **dict.fromkeys(READING_OPTIONS, "task"),
        "architecture": "model",
        "preset": "training",
    }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {**section_of_field(), **self.SECTIONS}
        for section, title in self.TITLES.items():
            records = [
                record
                for parameter in self.get_params(ctx)
                if sections.get(parameter.name or "", "") == section
                and (record := parameter.get_help_record(ctx))
            ]
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.epilog, formatter)
