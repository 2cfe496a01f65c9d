"""Serve the page: the app, its middleware, its JSON routes, and the public API.

app.py composes the page from `playground.ui`. A file NAME_api.py has the handlers of one tab or
subject.
"""
