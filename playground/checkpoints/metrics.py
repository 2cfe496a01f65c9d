"""Read metrics.jsonl, which has a line for each step of a run, without torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playground.common import messages
from playground.common.messages import file_label
from playground.common.strict_json import parse_strict_json
from playground.training.train_config import TrainConfig

from .manifest import CheckpointError, is_number

MAX_METRICS_BYTES = 300_000_000  # bytes; enough for the metrics of a million steps
MAX_LINE_BYTES = 10_000  # bytes of the metrics of a step
MAX_STEPS = TrainConfig.__dataclass_fields__["max_steps"].metadata["high"]


def read_metrics(
    folder: Path, until: float = float("inf"), *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the metrics of the steps up to `until` in the folder of a run or a checkpoint.

    An incomplete last line, as a killed process leaves it, is skipped; if the file was written as a
    `whole`, it is an error. The file is untrusted: raises CheckpointError for a line that is not a
    JSON object of numbers with a step and a loss.
    """
    path = Path(folder) / "metrics.jsonl"
    if not path.is_file():
        return
    try:
        size = path.stat().st_size
        if size > MAX_METRICS_BYTES:
            raise CheckpointError(
                messages.too_many_bytes(file_label(path), size, MAX_METRICS_BYTES)
            )
        with open(path, "rb") as file:
            lines = iter(lambda: file.readline(MAX_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, start=1):
                is_complete = line.endswith(b"\n") or len(line) > MAX_LINE_BYTES
                if not is_complete and not whole:
                    return
                try:
                    if number > MAX_STEPS:
                        raise ValueError(f"at most {MAX_STEPS:,} lines are read, one for each step")
                    content = _parse_line(line)
                except ValueError as error:
                    raise CheckpointError(f"{file_label(path)}, line {number}: {error}") from None
                if content["step"] <= until:
                    yield content
    except OSError as error:
        raise CheckpointError(messages.could_not_read(path, error)) from None


def _parse_line(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"it has more than {MAX_LINE_BYTES:,} bytes; a line must be shorter")
    content = parse_strict_json(line)
    if not isinstance(content, dict) or not {"step", "loss"} <= set(content):
        raise ValueError("it does not contain the metrics of a step")
    if not all(is_number(value) for value in content.values()) or type(content["step"]) is not int:
        raise ValueError("metrics must be numbers")
    return content
