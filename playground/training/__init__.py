"""Floor 4: how a family learns. Settings, presets, schedules, the Trainer, checkpoints; importing this alone loads no torch."""
