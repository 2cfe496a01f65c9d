"""Helpers that several layers of the tests share."""
