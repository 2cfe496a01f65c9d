"""Train a model on a running playground, follow its progress, and run it:

    python playground/examples/api_client.py http://127.0.0.1:7860

gradio_client is installed with gradio. The address can also be a Space, as user/space.
"""

import sys
import time

from gradio_client import Client


def main(address: str) -> None:
    playground = Client(address, verbose=False)
    settings = {
        "task": "reverse",
        "min_length": 1,
        "max_length": 4,
        "n_layers": 1,
        "n_heads": 1,
        "max_steps": 600,
        "stop_at_exact_match": 0.999,
    }
    run = playground.predict(settings=settings, name="API example", api_name="/start")
    # The owner key is a secret, because it permits stopping the run.
    credentials = {"model": run["run"], "owner": run["owner"]}
    while (result := playground.predict(**credentials, api_name="/status"))["status"] in (
        "waiting",
        "starting",
        "training",
    ):
        print(f"step {result['step']} of {result['steps']}, exact match {result['exact_match']}")
        time.sleep(1)
    scores = playground.predict(**credentials, n=500, api_name="/evaluate")
    low, high = scores["interval"]
    print(
        f"{result['status']} at step {result['step']}: exact match {scores['exact_match']:.1%} of "
        f"{scores['n']} ({low:.1%} to {high:.1%})"
    )
    output = playground.predict(**credentials, sequence="3 1 4", api_name="/predict")
    print("3 1 4 ->", " ".join(output["prediction"]))
    attention = playground.predict(
        **credentials, sequence="3 1 4", kind="cross", api_name="/attention"
    )
    for row, weights in zip(attention["rows"], attention["weights"][0][0], strict=True):
        strongest = max(zip(weights, attention["columns"], strict=True))
        print(f"{row}: head 1 of layer 1 attends to {strongest[1]} with weight {strongest[0]:.2f}")
    print("view it:", f"{playground.src.rstrip('/')}/?watch={run['watch'].removeprefix('watch:')}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7860")
