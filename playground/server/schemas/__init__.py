"""The requests that the server accepts, one module per API, as pydantic models.

A field that a page sends under another name has an alias. `model_json_schema` describes what the
page has to send.
"""
