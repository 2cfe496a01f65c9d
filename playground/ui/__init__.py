"""The page: its views, the form of a run, and the Train tab.

Scripts, styles and templates are beside the Python modules. `playground.server` serves them.
"""
