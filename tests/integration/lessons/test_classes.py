"""Thirty pupils join a class over HTTP, and their guesses reach the teacher."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer

N_PUPILS = 30
POINTS = 21


@pytest.fixture
def app(tmp_path):
    server = AppServer(tmp_path, GRADIO_SERVER_NAME="0.0.0.0")
    yield server
    server.stop()


def test_thirty_pupils_join_a_class_that_survives_a_restart(app):
    teacher, pupils = new_owner_key(), [new_owner_key() for _ in range(N_PUPILS)]

    def post(name, owner, **fields):
        while True:
            url = f"{app.url}/playground/api/class/{name}"
            response = httpx.post(url, json={"owner": owner, **fields}, timeout=60)
            if response.status_code != 429:  # one address for all: the page waits, too
                return response

    code = {"code": post("open", teacher).json()["code"]}
    file = app.checkpoints / "classes" / f"{code['code']}.jsonl"

    def take_part(number):
        guess = {"lesson": "learning", "guess": [number] * POINTS}
        return [
            post("join", pupils[number], **code).json(),
            post("guess", pupils[number], **code, **guess).json(),
        ]

    with ThreadPoolExecutor(N_PUPILS) as pool:
        assert list(pool.map(take_part, range(N_PUPILS))) == [[{}, {}]] * N_PUPILS
    expected = [[number] * POINTS for number in range(N_PUPILS)]

    def guesses():
        response = post("poll", teacher, **code, lesson="learning").json()
        return response["n_pupils"], sorted(response["guesses"])

    assert guesses() == (N_PUPILS, expected)
    app.stop()
    app.start()
    assert guesses() == (N_PUPILS, expected)
    assert post("poll", pupils[0], **code).status_code == 404
    assert post("close", teacher, **code).json() == {}
    for name, owner in (("join", pupils[0]), ("poll", teacher)):
        response = post(name, owner, **code)
        assert (response.status_code, response.json()["code"]) == (404, "not-found")
    assert not file.exists()
