"""Inspection of trained models, and interventions that test what it finds.

It knows models, tasks and sequences, but no run and no page. `hooks` names the components of a
model, and `views/` has what the Inspect tab requests.
"""
