"""The requests that the server accepts, one module per API, as pydantic models."""
