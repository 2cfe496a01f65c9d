"""Layer 10: the page.

app.py composes the tabs, with one module per tab. The .js and .css files of a view are beside its
Python module.
"""
