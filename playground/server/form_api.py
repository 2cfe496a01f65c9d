"""The routes of the form of a run: check its values, fill it with settings, start a run."""

from functools import partial
from typing import Any, NotRequired, TypedDict

from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX, owns_dataset
from playground.runs.registry import Registry
from playground.training.setting_changes import SettingChange
from playground.ui.form_schema import form_defaults
from playground.ui.form_values import (
    check_form,
    form_errors,
    form_values,
    parse_settings,
    run_config,
)

from .routes import Handler, bind_handlers, handler
from .schemas.base import JsonObject, OptionalOwner, OwnerRequest, RequestBody

DEFAULTS = form_defaults()


class CheckForm(RequestBody):
    """The values of the form by field; a missing field has its default."""

    values: JsonObject
    owner: OptionalOwner = ""


class FillForm(RequestBody):
    """The settings of a link or of a run as JSON text."""

    settings: str


class StartRun(OwnerRequest):
    """The values of the form by field, and the speed of the new run in steps per second."""

    values: JsonObject
    speed: float = 0.0


class FormCheck(TypedDict):
    """The size of the model, and the errors by field; one of them is empty."""

    size: str
    errors: dict[str, str]


class FormValues(TypedDict):
    values: dict[str, Any]


class StartedRun(TypedDict):
    subject: NotRequired[str]
    errors: NotRequired[dict[str, str]]


def _all_fields(sent: dict[str, Any]) -> dict[str, Any]:
    return {name: sent.get(name, default) for name, default in DEFAULTS.items()}


@handler("form/check", CheckForm, FormCheck)
def check(registry: Registry, request: CheckForm) -> dict[str, Any]:
    """Return the size of the model and the errors of the form."""
    owns = partial(owns_dataset, registry, request.owner)
    check = partial(registry.check, owner=request.owner)
    return check_form(_all_fields(request.values), check, owns)


@handler("form/fill", FillForm, FormValues)
def fill(registry: Registry, request: FillForm) -> dict[str, Any]:
    """Return the values of the form for the settings of a link or of a run."""
    config = parse_settings(request.settings)
    fields = form_values(config) | config.to_flat()
    return {"values": {name: fields[name] for name in DEFAULTS if name in fields}}


@handler("form/start", StartRun, StartedRun)
def start(registry: Registry, request: StartRun) -> dict[str, Any]:
    """Start a run; return its reference, or the errors of the form."""
    values, owns = _all_fields(request.values), partial(owns_dataset, registry, request.owner)
    speed = SettingChange(0, "speed", request.speed)
    changes = [speed] if speed.value else []
    try:
        run = registry.start(run_config(values, owns), request.owner, changes=changes)
    except ConfigError as error:
        return {"errors": form_errors(values, error)}
    return {"subject": RUN_PREFIX + run.id}


def form_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handlers of the form, by route name."""
    return bind_handlers(registry, globals())
