"""What every package uses: atomic writes, environment, devices, statistics, logs, storage."""
