"""The hash of the held-out split in plain Python."""


def splitmix64(x):
    """Compute splitmix64 with Python's unbounded integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return x ^ x >> 27
