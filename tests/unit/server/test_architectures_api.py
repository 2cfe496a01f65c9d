"""The texts of the architectures in the Compare tab."""

from playground.server.architectures_api import describe_optimizer
from playground.training.presets import architecture_preset


def test_an_optimizer_is_described_by_name_rate_and_averaging():
    assert describe_optimizer(architecture_preset("transformer").training) == (
        "Muon, 0.003, averaged weights"
    )
    assert describe_optimizer(architecture_preset("bert").training).startswith("Adam, ")
