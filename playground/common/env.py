"""The environment of the server: validated values, secrets, and the proxy."""

import math
import os
import re
from dataclasses import dataclass
from urllib.request import getproxies_environment

from playground.errors import UserError
from playground.models.config_fields import format_number, short_repr

from .platform import START_METHODS

PREFIX = "PLAYGROUND_"
TAG = "transformer-playground"  # of models and Spaces of the playground on the Hub
PAGE_MARK = f'<meta name="generator" content="{TAG}">'  # of exported pages, and of no others


@dataclass(frozen=True)
class EnvNumber:
    """The default of a variable and the range that it accepts; an `integer` has no fraction."""

    default: float
    low: float = 0
    high: float = 1e9
    integer: bool = False


# Without PREFIX. docs/hosting.md describes each.
ENV_NUMBERS = {
    "SLOTS": EnvNumber(0, high=1000, integer=True),
    "IDLE_TIMEOUT_S": EnvNumber(1800),
    "RELEASE_AFTER_S": EnvNumber(600),
    "HANG_TIMEOUT_S": EnvNumber(60),
    "HISTORY_MB": EnvNumber(96),
    "UPLOAD_MB": EnvNumber(50),
    "DATASETS_PER_USER_MB": EnvNumber(100),
    "DATASETS_TOTAL_MB": EnvNumber(2000),
    "MAX_MODEL_MB": EnvNumber(2000),
    "MODEL_CACHE_MB": EnvNumber(3000),
    "MAX_D_MODEL": EnvNumber(512, integer=True),
    "MAX_LAYERS": EnvNumber(8, integer=True),
    "MAX_LENGTH": EnvNumber(128, integer=True),
    "MAX_BATCH": EnvNumber(512, integer=True),
    "MAX_MINUTES": EnvNumber(15),
    "RUNS_MB": EnvNumber(200),
    "RUNS_TOTAL_MB": EnvNumber(5000),
    "ADDRESS_MS": EnvNumber(500),
    "OWNER_MS": EnvNumber(200),
    "API_PROXIES": EnvNumber(1, low=1, high=100, integer=True),
}


@dataclass(frozen=True)
class EnvText:
    """The default of a variable, the pattern of its values, and what it accepts in words."""

    default: str
    pattern: str
    accepted: str


LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
ENV_TEXTS = {
    "DEV": EnvText("0", "[01]", "0 or 1"),
    "LOCAL_MODELS": EnvText("1", "[01]", "0 or 1"),
    "LOG_LEVEL": EnvText("INFO", f"(?i:{'|'.join(LOG_LEVELS)})", f"one of {', '.join(LOG_LEVELS)}"),
    "START_METHOD": EnvText(
        START_METHODS[0], "|".join(START_METHODS), f"one of {', '.join(START_METHODS)}"
    ),
    "HOSTS": EnvText(
        "",
        r"[\w.:*\[\]-]+(\s*,\s*[\w.:*\[\]-]+)*,?",
        "host names without https://, such as a.org, b.org",
    ),
    "LIMITS": EnvText(
        "",
        r"([a-z-]+\.(per-owner|per-address|total)=\d{1,6}\s*(,\s*|$))+",
        "numbers for limits that the command `limits` lists, such as queued-runs.total=800",
    ),
    "URL": EnvText("", r"https?://[\w.:/~%-]+", "an address, such as https://a.org/playground"),
}

HOSTS_WITHOUT_PROXY = ("localhost", "127.0.0.1", "::1")

# Only the server reads these. Its workers parse untrusted files and do not inherit them.
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OAUTH_CLIENT_SECRET")
_secrets: dict[str, str] = {}


def withhold_secrets() -> None:
    """Remove the secrets from the environment that child processes inherit. Idempotent."""
    _secrets.update({name: os.environ.pop(name) for name in SECRETS if name in os.environ})


def secret(name: str) -> str:
    """Return a secret of the environment, withheld or not; empty if it is not set."""
    return _secrets.get(name) or os.environ.get(name, "")


class EnvError(UserError):
    """An environment variable has a value that it does not accept."""


def _read(name: str) -> str:
    """Return the value of PLAYGROUND_`name`; empty if it is not set."""
    return os.environ.get(PREFIX + name, "").strip()


def env_number(name: str) -> float:
    """Return the number that PLAYGROUND_`name` is set to, or its default. Raises EnvError."""
    spec = ENV_NUMBERS[name]
    text = _read(name)
    try:
        value = float(text) if text else spec.default
    except ValueError:
        value = math.nan
    if not spec.low <= value <= spec.high or (spec.integer and value % 1):
        kind = "a whole number" if spec.integer else "a number"
        bounds = f"from {format_number(int(spec.low))} to {format_number(int(spec.high))}"
        default = format_number(spec.default)
        raise EnvError(
            f"{PREFIX}{name} is {short_repr(text)}; it must be {kind} {bounds}, or be left out for "
            f"{default}"
        )
    return value


def env_text(name: str) -> str:
    """Return the text that PLAYGROUND_`name` is set to, or its default. Raises EnvError."""
    spec, text = ENV_TEXTS[name], _read(name)
    if text and not re.fullmatch(spec.pattern, text, re.ASCII):
        default = f" for {spec.default}" if spec.default else ""
        raise EnvError(
            f"{PREFIX}{name} is {short_repr(text)}; it must be {spec.accepted}, or be left out"
            f"{default}"
        )
    return text or spec.default


def validate_env() -> None:
    """Read every variable at the start; raise EnvError for the first invalid value."""
    for name in ENV_NUMBERS:
        env_number(name)
    for name in ENV_TEXTS:
        env_text(name)


def normalize_hub_endpoint() -> None:
    """Remove blanks and a final slash from HF_ENDPOINT; raise EnvError if it is no address."""
    text = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/")
    if text and not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w.~%/-]+)?", text, re.ASCII):
        raise EnvError(
            f"HF_ENDPOINT is {short_repr(text)}; it must be the address of a Hub, such as "
            "https://huggingface.co, or be left out"
        )
    os.environ.pop("HF_ENDPOINT", None)
    if text:
        os.environ["HF_ENDPOINT"] = text


def is_env_set(name: str) -> bool:
    """Return whether PLAYGROUND_`name` has a value."""
    return bool(_read(name))


def exempt_local_hosts_from_proxy() -> None:
    """Let requests to this machine bypass the proxy of the environment.

    Gradio sends one at its start, and ends the app if a proxy rejects it. Without a proxy in the
    environment nothing changes, because these variables would hide the proxy of the system.
    """
    if not getproxies_environment():
        return
    excluded = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [each.strip() for each in excluded.split(",")]
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(dict.fromkeys([*filter(None, hosts), *HOSTS_WITHOUT_PROXY]))


def set_env_default(name: str, value: str) -> None:
    """Set PLAYGROUND_`name` if it has no value."""
    if not is_env_set(name):
        os.environ[PREFIX + name] = value


def env_bytes(name: str) -> int:
    """Return the bytes of a variable in megabytes (10**6 bytes)."""
    return int(env_number(name) * 1_000_000)


def playground_url() -> str:
    """Return PLAYGROUND_URL, else this Space's URL, else that of the models on the Hub."""
    if url := env_text("URL"):
        return url
    if re.fullmatch(r"[\w.-]+/[\w.-]+", os.environ.get("SPACE_ID", ""), re.ASCII):
        return f"https://huggingface.co/spaces/{os.environ['SPACE_ID']}"
    return f"https://huggingface.co/models?other={TAG}"
