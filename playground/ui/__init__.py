"""Floor 9: the page. app.py composes; one module per tab; the .js and .css of a view stand
beside the Python that uses it.
"""
