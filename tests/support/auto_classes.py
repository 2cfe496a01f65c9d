"""Register the architectures of this repository in transformers' Auto classes."""

from importlib import import_module

import transformers

from playground.hub.formats import PackageFormat


def register(form: PackageFormat) -> None:
    """Register a model and its configuration in this process.

    `from_pretrained(..., trust_remote_code=False)` then loads a package without its code.
    """
    module = import_module(f"playground.models.{form.module}")
    config_class = getattr(module, form.config)
    transformers.AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    auto_class = getattr(transformers, form.auto_class)
    auto_class.register(config_class, getattr(module, form.model), exist_ok=True)
