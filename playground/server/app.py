"""Compose the app of the page, its routes and the public API, and launch it."""

import multiprocessing.util
import os
import shutil
import sys
import threading
from contextlib import ExitStack
from types import FrameType
from typing import Any

# By default Gradio summarizes each event with pandas, and sends usage statistics.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "200")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "50")

import gradio as gr
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from playground import ASSETS_DIR
from playground.common.env import exempt_local_hosts_from_proxy, set_env_default, withhold_secrets
from playground.common.logs import configure_logging
from playground.common.platform import handle_stop_signals, has_display
from playground.common.storage import resolve_storage
from playground.experiments.service import ExperimentService
from playground.hub.jobs import HubJobs
from playground.jobs.job import Job
from playground.jobs.process import warm_up
from playground.lessons.service import LessonJobs
from playground.pretrained.jobs import PretrainedJobs
from playground.runs.limits import Limits
from playground.runs.owner_keys import machine_owner_key
from playground.runs.registry import Registry
from playground.runs.storage_folder import locked_storage
from playground.ui.page import UI_DIR, build_page

from .api import Endpoints
from .api_calls import has_mcp
from .api_page import API_PAGE
from .asgi import accepted_encoding
from .checkpoint_transfer import CheckpointTransfer
from .connections import configure_uvicorn, sweep_connections
from .datasets_api import DatasetHandlers
from .experiments_api import ExperimentHandlers
from .form_api import form_handlers
from .hub_api import HubHandlers
from .hub_token import can_sign_in
from .jobs_api import JobHandlers
from .lessons_api import ClassHandlers, LessonHandlers
from .live_api import live_handlers
from .middleware import build_middleware
from .process_calls import process_queue
from .project_files import ProjectFiles
from .rate_limit import LoadLimits
from .replications_api import ReplicationHandlers
from .report_api import Cards, ReportHandlers
from .routes import Handler, HandlerGroup, build_routes
from .runs_api import DamagedHandlers
from .session import SessionHandlers
from .static_files import encode_text, static_route
from .weights_api import weights_route

# Rate limits bound what one client adds to the queue; a small queue would let one fill it for all.
MAX_QUEUE = 2000
MAX_SESSIONS = 100  # of Gradio; the page stores no state in them


class Api(gr.Blocks):
    """The endpoints of the public API; with sign-in routes where the server offers sign-in."""

    @property
    def expects_oauth(self) -> bool:
        return can_sign_in()


def build_app(endpoints: Endpoints) -> gr.Blocks:
    """Return Gradio's part of the app. The page is a route beside it."""
    with Api(title="Transformer Playground", analytics_enabled=False) as api:
        endpoints.register()
    # By default Gradio sends a message to each waiting event whenever one starts.
    api.queue(status_update_rate=3600, default_concurrency_limit=4, max_size=MAX_QUEUE)
    return api


def build_handlers(
    registry: Registry, experiments: ExperimentService, public: bool
) -> dict[str, Handler]:
    """Return the handlers of all tabs by route name; `public`: others can reach the page."""
    handlers = live_handlers(registry) | form_handlers(registry)
    pretrained = PretrainedJobs(hosted=public)
    hub = HubJobs(has_one_user=bool(registry.single_owner))
    lessons = LessonJobs(experiments, pretrained=pretrained)
    groups: tuple[HandlerGroup, ...] = (
        SessionHandlers(registry),
        ReportHandlers(registry),
        JobHandlers(registry, pretrained, hub, lessons),
        ExperimentHandlers(registry, experiments),
        ReplicationHandlers(registry, experiments),
        DamagedHandlers(registry, experiments),
        HubHandlers(registry),
        LessonHandlers(registry, lessons),
        ClassHandlers(registry),
    )
    for group in groups:
        handlers |= group.handlers()
    return handlers


def launch_options(
    registry: Registry,
    handlers: dict[str, Handler],
    host: str | None,
    port: int | None,
    load: LoadLimits,
    share: bool = False,
) -> dict[str, Any]:
    """Return the options of `launch`; see `is_public` for `host` and `share`."""
    host = host or os.environ.get("GRADIO_SERVER_NAME") or None
    datasets, public = DatasetHandlers(registry), is_public(host, share)
    cards = Cards(registry)
    return {
        "server_name": f"[{host.strip('[]')}]" if host and ":" in host else host,
        "server_port": port,
        "share": share,
        "pwa": True,
        "favicon_path": UI_DIR / "icon.svg",
        "footer_links": [],
        "max_file_size": "50mb",
        "enable_monitoring": False,
        "run_history": False,
        "ssr_mode": False,
        "state_session_capacity": MAX_SESSIONS,
        # Gradio's own check fails if the first page takes 3 s, as on one core during the import of
        # torch.
        "_frontend": False,
        "show_error": False,
        "mcp_server": has_mcp(),
        "app_kwargs": {
            "lifespan": sweep_connections,
            "middleware": build_middleware(public, can_sign_in(), load),
            "routes": [
                page_route(cards),
                cards.route(),
                *build_routes(handlers | datasets.handlers(), load),
                *CheckpointTransfer(registry).routes(),
                *datasets.routes(),
                weights_route(registry, load),
                static_route(),
                ProjectFiles().route(),
                API_PAGE,
            ],
        },
    }


def page_route(cards: Cards) -> Route:
    """Return the route of the page; `cards` has what other sites show of a link to a model."""
    html = build_page(ProjectFiles().links(), os.environ.get("SPACE_ID", ""))

    bodies = {name: encode_text(html.encode(), name) for name in ("br", "gzip", "identity")}

    async def page(request: Request) -> HTMLResponse:
        encoding = accepted_encoding(",".join(request.headers.getlist("accept-encoding")))
        headers = {"cache-control": "private, no-cache", "vary": "Accept-Encoding"}
        if request.url.query and (tags := await cards.tags(request)):
            return HTMLResponse(html.replace("</title>", "</title>" + tags, 1), headers=headers)
        if encoding != "identity":
            headers["content-encoding"] = encoding
        return HTMLResponse(bodies[encoding], headers=headers)

    return Route("/", page, methods=["GET"])


def is_public(host: str | None, share: bool = False) -> bool:
    """Return whether other machines can reach the page: on a Space, by a link or a host name."""
    return (
        share
        or "SPACE_ID" in os.environ
        or (host or "localhost").strip("[]") not in ("localhost", "127.0.0.1", "::1")
    )


def report_device(registry: Registry) -> None:
    """Report where runs train, on the page and in the log; a process with torch determines it."""

    def on_done(job: Job) -> None:
        if summary := job.response().get("summary"):
            registry.device_summary = summary
            print(summary, flush=True)

    functions = {"device": "playground.runs.device:report_device"}
    process_queue(functions, on_done, process="the device process").submit("device")


def _shut_down_on_signals(registry: Registry, experiments: ExperimentService) -> None:
    def shut_down() -> None:
        experiments.close()
        saved, killed = registry.shutdown()
        if saved or killed:
            unsaved = f"; ended without saving what came after their last checkpoint: {killed}"
            print(f"Runs saved: {saved}" + unsaved * (killed > 0))
        sys.stdout.flush()
        shutil.rmtree(multiprocessing.util.get_temp_dir(), ignore_errors=True)
        os._exit(0)  # the threads hold no unsaved state

    shutdown = threading.Thread(target=shut_down, name="shutdown")

    def on_signal(signal_number: int, frame: FrameType | None) -> None:
        # In its own thread: this one may hold a lock that the shutdown needs.
        if shutdown.ident is None:
            shutdown.start()

    # These signals skip atexit, so the handlers are set before the launch.
    handle_stop_signals(on_signal)


def serve(
    host: str | None = None, port: int | None = None, *, share: bool = False, browser: bool = False
) -> None:
    """Serve the page until a signal arrives; then save every run, and exit with 0.

    `browser` opens a browser if there is a display. `share` creates a public link through Gradio's
    tunnel. storage.py selects the folder of checkpoints and runs.
    """
    configure_logging()
    withhold_secrets()  # Gradio reads its own secret on import
    configure_uvicorn()
    exempt_local_hosts_from_proxy()
    share = share or os.environ.get("GRADIO_SHARE", "").lower() == "true"
    public = is_public(host or os.environ.get("GRADIO_SERVER_NAME"), share)
    if public:
        set_env_default("IDLE_TIMEOUT_S", "180")
        set_env_default("HISTORY_MB", "32")
    storage, locks = resolve_storage(), ExitStack()
    locks.enter_context(locked_storage(storage.root))  # until the process ends
    warm_up()
    registry = Registry(storage.root, limits=Limits.shared_instance() if public else Limits())
    registry.storage.bundled = ASSETS_DIR / "checkpoints"
    storage_error = registry.storage.error()
    registry.storage_note = " ".join(filter(None, (storage_error, storage.note)))
    if not storage_error:
        registry.storage.use_scratch()
    else:
        print(f"{registry.storage.runs}: {storage_error}", file=sys.stderr, flush=True)
    report_device(registry)
    registry.snapshots.inspector.warm_up()
    if not public:
        registry.single_owner = machine_owner_key(registry.root)
    if public:  # one user cannot hold every slot
        registry.settings.slots_per_owner = max(1, registry.settings.slots - 1)
    experiments = ExperimentService(registry)

    _shut_down_on_signals(registry, experiments)
    handlers = build_handlers(registry, experiments, public)
    load = LoadLimits.from_environment(public)
    page = build_app(Endpoints(registry, handlers, load))
    inbrowser = browser and not public and has_display()
    page.launch(**launch_options(registry, handlers, host, port, load, share), inbrowser=inbrowser)
