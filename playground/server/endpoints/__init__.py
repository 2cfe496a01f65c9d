"""The endpoints of the public API by subject; api.py registers them."""
