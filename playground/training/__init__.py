"""Training: settings, presets, batches, schedules, optimizers and the Trainer."""
