"""The endpoints for predictions, attention weights and evaluations."""

# no `from __future__ import annotations`: Gradio reads the types of the endpoints
import asyncio
import base64
from array import array
from typing import Any, Literal

import gradio as gr

from playground.common.stats import exact_match_interval
from playground.errors import UserError
from playground.runs.access import Right

from ..client import resolve_client
from ..process_calls import await_result
from ..schemas.base import Name, Sequence
from ..schemas.public_api import EvalSize, Owner, Step
from .base import EndpointBase, endpoint, step_field

EVALUATION_TIMEOUT_S = 280.0  # seconds
MAX_WEIGHTS = 200_000  # weights in one response


class InferenceEndpoints(EndpointBase):
    """Run and evaluate models."""

    @endpoint(needs=Right.USE)
    async def predict(
        self,
        model: Name,
        sequence: Sequence,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Generate a prediction for a sequence, free-running, one token at a time.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: tokens of the model's task, such as "3 1 4".
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            prediction: generated tokens; target, or null; correct: whether they match; note.
        """
        ref = self.model_ref(model, owner)
        payload = ref.model_dump() | {"text": sequence} | step_field(step)
        return await self.call_handler("runs/predict", payload, request)

    @endpoint(needs=Right.USE)
    async def attention(
        self,
        model: Name,
        sequence: Sequence,
        kind: Literal["cross", "encoder", "decoder"] = "cross",
        layer: Step = -1,
        head: Step = -1,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Return the attention weights of a model while it generates its prediction.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            sequence: tokens of the model's task, such as "3 1 4".
            kind: cross (target to source), encoder (source only) or decoder (target only).
            layer: a layer index from 0; -1 for all.
            head: a head index from 0; -1 for all.
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            weights[layer][head][row][column], rounded to 0.001; tokens of rows and columns;
            prediction; target, or null.
        """
        ref = self.model_ref(model, owner)
        payload = ref.model_dump() | {"text": sequence, "view": "attention"} | step_field(step)
        response = await self.call_handler(
            "inspect/view", payload | {"options": {"kind": kind}}, request
        )
        layers = _select_indices("layer", layer, response["layers"])
        heads = _select_indices("head", head, response["heads"])
        return {
            "kind": response["kind"],
            "layers": layers,
            "heads": heads,
            "rows": response["rows"],
            "columns": response["columns"],
            "weights": _decode_weights(response, layers, heads),
            "prediction": response["prediction"],
            "target": response["target"],
            "step": response.get("step"),
            "note": response["note"],
        }

    @endpoint("heavy", needs=Right.USE)
    async def evaluate(
        self,
        model: Name,
        n: EvalSize = 500,
        owner: Owner = "",
        step: Step = -1,
        request: gr.Request = None,
    ) -> dict[str, Any]:
        """Evaluate a model on held-out sequences with free-running decoding.

        Args:
            model: a run's id, watch:ID, or checkpoint:NAME.
            n: number of sequences, from 1 to 2000, spread over the training lengths.
            owner: the key that start returned, for a run's id.
            step: use the recorded weights nearest to this step of a run; -1 for the latest.

        Returns:
            n, exact_match and token_accuracy (0 to 1), interval (95 %), by_length, step.
        """
        resolved = await self.require(model, owner, Right.USE)
        client = resolve_client(self.model_ref(model, owner), request)
        load_at_step = step if step >= 0 else None
        future = await asyncio.to_thread(
            self.registry.snapshots.evaluate, resolved.source, n, load_at_step, client
        )
        result = await await_result(future, EVALUATION_TIMEOUT_S)
        interval = exact_match_interval(result)
        return result | {"interval": list(interval) if interval else None}


def _select_indices(name: str, index: int, count: int) -> list[int]:
    """Return the selected index as a list, or all indices for -1.

    Raises:
        UserError: if the model has no such index.
    """
    if index >= count:
        raise UserError(f"{name} is {index}; give a whole number from -1 to {count - 1}")
    return [index] if index >= 0 else list(range(count))


def _decode_weights(
    response: dict[str, Any], layers: list[int], heads: list[int]
) -> list[list[list[list[float]]]]:
    """Return the attention weights of a view as weights[layer][head][row][column].

    Raises:
        UserError: if there are too many.
    """
    n_rows, n_columns = len(response["rows"]), len(response["columns"])
    if len(layers) * len(heads) * n_rows * n_columns > MAX_WEIGHTS:
        raise UserError(
            f"the response exceeds {MAX_WEIGHTS:,} weights; request one layer or one head"
        )
    thousandths = array("h", base64.b64decode(response["weights"]))

    def decode_row(layer: int, head: int, row: int) -> list[float]:
        start = ((layer * response["heads"] + head) * n_rows + row) * n_columns
        return [weight / 1000 for weight in thousandths[start : start + n_columns]]

    return [
        [[decode_row(layer, head, row) for row in range(n_rows)] for head in heads]
        for layer in layers
    ]
