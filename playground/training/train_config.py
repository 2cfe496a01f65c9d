"""The settings of optimization and evaluation."""

from dataclasses import dataclass

from playground.models.config_fields import ConfigError, config_field, validate_fields


@dataclass(frozen=True)
class TrainConfig:
    """Optimization and evaluation during training.

    The role of a setting: a `treatment`, the default, changes what a step learns, the `budget` how
    long a run learns, a `measurement` only what is known about it; the others are `repetition` and
    `machine`.
    """

    max_steps: int = config_field(
        200, "Number of training steps.", bounds=(1, 1_000_000), role="budget"
    )
    batch_size: int = config_field(
        128, "Sequences in each step; every batch is sampled anew.", bounds=(1, 65_536)
    )
    learning_rate: float = config_field(
        6e-3,
        "Learning rate; with the noam schedule, a factor of its rate (1 in the paper).",
        bounds=(1e-9, 100),
    )
    lr_schedule: str = config_field(
        "cosine",
        "Learning rate after the warm-up: constant, cosine decay, or as in the paper (noam).",
        choices=("constant", "cosine", "noam"),
    )
    warmup_steps: int = config_field(
        20, "Steps of linear warm-up of the learning rate.", bounds=(0, 1_000_000)
    )
    lr_decay_steps: int = config_field(
        160, "Cosine only: the step at which the decay ends.", bounds=(1, 1_000_000)
    )
    min_lr_ratio: float = config_field(
        0.05, "Cosine only: final learning rate as a fraction of the maximum.", bounds=(0, 1)
    )
    optimizer: str = config_field(
        "adam",
        "Optimizer: Adam, AdamW, SGD with momentum, or Muon for the hidden matrices with AdamW for "
        "all other weights.",
        choices=("adam", "adamw", "sgd", "muon"),
    )
    weight_decay: float = config_field(
        0.0,
        "Weight decay. Adam and SGD add its product with the weight to the gradient; in AdamW and "
        "Muon, it is a separate update.",
        bounds=(0, 10),
    )
    weight_decay_on: str = config_field(
        "all",
        "Weight decay applies to all weights, or to the matrices of linear layers only.",
        choices=("all", "linear"),
    )
    momentum: float = config_field(
        0.9,
        "SGD and Muon: momentum, the fraction of the last update that is kept.",
        bounds=(0, 0.9999),
    )
    muon_lr_ratio: float = config_field(
        7.5,
        "Muon only: learning rate of the hidden matrices as a multiple of the learning rate, which "
        "all other weights have.",
        bounds=(1e-3, 1000),
    )
    adam_beta1: float = config_field(
        0.9, "Adam, AdamW and Muon: decay rate of the gradient's mean.", bounds=(0, 0.9999)
    )
    adam_beta2: float = config_field(
        0.98,
        "Adam, AdamW and Muon: decay rate of the squared gradient's mean.",
        bounds=(0, 0.999999),
    )
    adam_eps: float = config_field(
        1e-9, "Adam, AdamW and Muon: constant that prevents division by zero.", bounds=(1e-16, 1)
    )
    label_smoothing: float = config_field(
        0.0,
        "Probability that is spread over the whole vocabulary, including special tokens.",
        bounds=(0, 0.9),
    )
    max_grad_norm: float = config_field(
        1.0,
        "Maximum gradient norm; larger gradients are scaled down. 0 turns clipping off.",
        bounds=(0, 1e6),
    )
    weight_averaging: bool = config_field(
        False,
        "Scores, the live view and saved models use a running average of the weights, in which "
        "recent steps count more.",
    )
    eval_every: int = config_field(
        10, "Steps between two evaluations.", bounds=(1, 1_000_000), role="measurement"
    )
    eval_size: int = config_field(
        256,
        "Held-out sequences in each evaluation; the final one uses 2,000.",
        bounds=(1, 10_000),
        role="measurement",
    )
    stop_at_exact_match: float = config_field(
        0.0,
        "Stop early at this exact match, once confirmed on 2,000 sequences; 0 never stops.",
        bounds=(0, 1),
        role="measurement",
    )
    seed: int = config_field(
        0,
        "The same seed gives exactly the same run on the same machine.",
        bounds=(0, 2**31 - 1),
        role="repetition",
    )
    device: str = config_field(
        "auto",
        "Device: auto uses a CUDA GPU if there is one; mps is Apple's GPU, for float32.",
        choices=("auto", "cpu", "cuda", "mps"),
        role="machine",
    )
    precision: str = config_field(
        "float32",
        "Precision of matrix products: float32, or on a GPU tf32 or bfloat16, which are faster for "
        "large models and less exact.",
        choices=("float32", "tf32", "bfloat16"),
    )
    num_threads: int = config_field(
        1,
        "CPU threads; 0 is one below a million parameters, else the machine's cores divided by its "
        "training slots. Another number changes the last bits of the results.",
        bounds=(0, 256),
        role="machine",
    )

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.device == "mps" and self.precision != "float32":
            raise ConfigError(
                "precision",
                f"precision is {self.precision}, but device is mps, which trains with float32 "
                "only; make precision float32 or choose another device",
            )

    def check_effects(self) -> None:
        """Raise ConfigError for settings without effect; stored runs may have some."""
        if self.weight_decay_on != "all" and not self.weight_decay:
            raise ConfigError(
                "weight_decay_on",
                f"weight_decay_on is {self.weight_decay_on}, but weight_decay is 0, so no weight "
                "decays; raise weight_decay or make weight_decay_on all",
            )
        if self.lr_schedule == "cosine" and (
            self.lr_decay_steps <= self.warmup_steps < self.max_steps
        ):
            raise ConfigError(
                "warmup_steps",
                f"warmup_steps is {self.warmup_steps}, but the cosine ends at lr_decay_steps "
                f"{self.lr_decay_steps}, so the learning rate would fall in one step; lower "
                "warmup_steps or raise lr_decay_steps",
            )
