"""Every handler of the page validates its request with a pydantic model."""

import pytest

from playground.common.validation import parse
from playground.compat import upgrade_request
from playground.server.architectures_api import ArchitectureHandlers
from playground.server.compare_api import CompareHandlers
from playground.server.datasets_api import DatasetHandlers
from playground.server.experiments_api import ExperimentHandlers
from playground.server.hub_api import HubHandlers
from playground.server.inspect_api import InspectHandlers
from playground.server.lessons_api import LessonHandlers
from playground.server.replications_api import ReplicationHandlers
from playground.server.report_api import ReportHandlers
from playground.server.routes import LOAD_MS_BY_ROUTE
from playground.server.schemas.datasets import ActOnDataset
from playground.server.schemas.hub import SubmitHubTask
from playground.server.schemas.jobs import SubmitJob, TrainArchitectures
from playground.server.schemas.lessons import StartBug, StartLesson, SubmitGuess
from playground.server.schemas.runs import ActOnRun
from playground.server.session import SessionHandlers

GROUPS = (
    ArchitectureHandlers,
    CompareHandlers,
    DatasetHandlers,
    ExperimentHandlers,
    HubHandlers,
    InspectHandlers,
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
    assert set(LOAD_MS_BY_ROUTE) - {
        name for name in LOAD_MS_BY_ROUTE if name.startswith("runs/")
    } <= set(routes)


# As the pages of versions 0.1.0 and 0.2.0 sent them.
@pytest.mark.parametrize(
    ("request_type", "recorded", "field", "value"),
    [
        (ActOnRun, {"subject": "run:a", "do": "pause"}, "action", "pause"),
        (ActOnRun, {"subject": "run:a", "do": "again"}, "action", "rerun"),
        (ActOnRun, {"subject": "run:a", "do": "keep"}, "action", "save"),
        (SubmitJob, {"kind": "benchmark", "what": {"n": 3}}, "request", {"n": 3}),
        (StartLesson, {"stop": "stop-7", "prediction": 3}, "lesson", "lesson-7"),
        (StartLesson, {"lesson": "stop-10"}, "lesson", "lesson-10"),
        (StartBug, {"bug": "mystery", "seed": 3, "steps": 60}, "bug", "random"),
        (SubmitGuess, {"mistake": "transpose", "line": 2}, "bug", "transpose"),
        (SubmitHubTask, {"kind": "push", "expected": "a1"}, "expected_parent", "a1"),
        (SubmitHubTask, {"kind": "pull", "main": True}, "is_main", True),
        (ActOnDataset, {"action": "use", "content": "a" * 64}, "sha256", "a" * 64),
        (TrainArchitectures, {"subject": "run:a", "families": ["gpt2"]}, "architectures", ["gpt2"]),
    ],
)
def test_requests_of_earlier_pages_are_accepted(request_type, recorded, field, value):
    content = recorded | {"owner": "A" * 32}
    request = parse(request_type, upgrade_request(content, request_type.model_fields))
    assert getattr(request, field) == value


def test_new_keys_of_a_request_precede_old_ones():
    assert upgrade_request({"do": "stop", "action": "pause"}, {"action": None})["action"] == "pause"
    assert upgrade_request(["do"], {"action": None}) == ["do"]
