"""The wheel is whole: it works in an empty environment, away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from tests.support import command


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [
        *pip,
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(command.REPO),
    ]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("polltop-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"engine/supervisor.py", "tui_app/app.tcss", "themes/polltop-dark.yaml", "engine/py.typed"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "docs"))]

    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], check=True, capture_output=True, text=True
    ).stdout.strip()
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--target", site, str(wheel)], check=True, timeout=120)
    # Its dependencies are those that the tests run with, by way of a path file: nothing is fetched.
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    assert not (Path(ours) / "engine").exists()
    (Path(site) / "dependencies.pth").write_text(ours + "\n")
    run = [str(python), "-m", "tui_app", "--demo", "--no-ui", "--duration", "3"]
    done = subprocess.run(run, cwd=tmp_path, env=command.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    where = subprocess.run(
        [python, "-c", "import engine, themes; print(engine.__file__, themes.__file__)"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert where.count(site) == 2


def test_the_lock_names_no_host_and_pins_everything() -> None:
    text = (command.REPO / "requirements.lock").read_text("utf-8")
    assert "://" not in text
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#", "    "))]
    assert all("==" in pin for pin in pins)
    assert text.count("--hash=sha256:") >= len(pins)
