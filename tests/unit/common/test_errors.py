"""The texts of errors name no folder of the machine."""

import pytest

from playground.errors import UserError, error_response


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UserError("/data/runs/x/0000002 has no weights"), "0000002 has no weights"),
        (UserError("'/srv/data/config.json' is damaged"), "'config.json' is damaged"),
        (UserError(r"C:\data\rows\config.json is damaged"), "config.json is damaged"),
        (UserError("ada/digits at https://hf.co/ada/digits/tree"), None),
        (UserError("write 3/4, checkpoints/x or ../x/y"), None),
        (
            FileNotFoundError(2, "No such file or directory", "/data/runs/x/run.json"),
            "run.json could not be read or written: No such file or directory; try again",
        ),
        (
            FileExistsError(17, "File exists", "/srv/secret/a", None, b"/srv/secret/b"),
            "a could not be read or written: File exists; try again",
        ),
        (TimeoutError(), "this took too long; try again"),
    ],
)
def test_an_error_names_no_folder(error, text):
    assert error_response(error)["error"] == (text or str(error))
