"""The page: its views, the form of a run, and the Train tab.

The ES modules and stylesheets are in `static`, a folder for each tab. `playground.server` serves
them.
"""
