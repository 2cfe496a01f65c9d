"""Every handler of the page validates its request with a pydantic model."""

import pytest

from playground.common.validation import parse
from playground.server import form_api, live_api, runs_api
from playground.server.datasets_api import DatasetHandlers
from playground.server.experiments_api import ExperimentHandlers
from playground.server.hub_api import HubHandlers
from playground.server.jobs_api import JobHandlers
from playground.server.lessons_api import ClassHandlers, LessonHandlers
from playground.server.replications_api import ReplicationHandlers
from playground.server.report_api import ReportHandlers
from playground.server.routes import LOAD_MS_BY_ROUTE
from playground.server.runs_api import DamagedHandlers
from playground.server.session import SessionHandlers

GROUPS = (
    form_api,
    live_api,
    runs_api,
    ClassHandlers,
    DamagedHandlers,
    DatasetHandlers,
    ExperimentHandlers,
    HubHandlers,
    JobHandlers,
    LessonHandlers,
    ReplicationHandlers,
    ReportHandlers,
    SessionHandlers,
)
HANDLERS = [each for group in GROUPS for each in vars(group).values() if hasattr(each, "route")]


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.route)
def test_request_has_a_json_schema_with_described_fields(handler):
    schema = handler.request_type.model_json_schema()
    assert schema["type"] == "object"
    assert handler.request_type.__doc__
    assert handler.request_type.model_config["strict"]


def test_each_route_has_one_handler():
    routes = [handler.route for handler in HANDLERS]
    assert len(set(routes)) == len(routes) > 25
    assert set(LOAD_MS_BY_ROUTE) <= set(routes)


@pytest.mark.parametrize("version", [-1, 0, 2**31, 2**32 - 1])
def test_a_poll_accepts_each_version_of_the_changes_of_a_run(version):
    request = {"subject": "run:x", "changes": version}  # CRC-32, or none
    assert parse(live_api.PollModel, request).changes == version
