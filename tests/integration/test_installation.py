"""The wheel in an environment whose path has blanks and an umlaut; docs/testing.md has the rest."""

import subprocess
import sys
import sysconfig
import venv

from hatchling.builders.wheel import WheelBuilder

from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT, AppServer


def files_of(folder):
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


def test_the_installed_app_opens_and_leaves_only_data_behind(tmp_path):
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    environment, work = tmp_path / "Größe, with blanks", tmp_path / "my work"
    work.mkdir()
    venv.create(environment)
    packages = next(environment.glob("**/site-packages"))
    # the packages that the wheel requires, from the environment of the tests
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    before = files_of(environment)

    def pip(*words):
        python = sysconfig.get_path("scripts", vars={"base": str(environment)}) + "/python"
        command = [sys.executable, "-m", "pip", "--python", python, *words]
        subprocess.run(command, check=True, capture_output=True, cwd=work)

    pip("install", "--no-deps", "--no-index", wheel)
    (command,) = environment.glob("*/transformer-playground*")
    app = AppServer(tmp_path, root=work, program=(str(command), "app", "--no-browser"))
    assert 'id="page"' in app.get("/")[1]
    assert app.stop() == 0
    assert "Traceback" not in app.log.read_text()
    pip("uninstall", "-y", "transformer-playground")
    assert files_of(environment) == before
    assert set(BUNDLED_CHECKPOINTS) < {path.name for path in (work / "checkpoints").iterdir()}
