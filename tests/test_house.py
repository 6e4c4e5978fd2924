"""The house keeps its walls: who may open a client, read the time, speak SQL, know the terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path for part in ("engine", "tui_app") for path in (ROOT / part).rglob("*.py"))


def imports(tree: ast.AST) -> set[str]:
    """Every module that is imported anywhere in the file, in full."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def attributes(tree: ast.AST) -> set[str]:
    """Every dotted name that is used, as written: `httpx.AsyncClient`."""
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.fixture(params=FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def module(request: pytest.FixtureRequest) -> tuple[str, ast.AST]:
    path: Path = request.param
    return path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


CLIENTS = {
    *(f"httpx.{name}" for name in ("AsyncClient", "Client", "AsyncHTTPTransport", "HTTPTransport")),
    *(f"httpx.{name}" for name in ("get", "post", "put", "patch", "delete", "head", "options", "request", "stream")),
    "urllib.request.urlopen", "urlopen", "socket.create_connection", "anyio.connect_tcp", "anyio.connect_unix",
    "asyncio.open_connection", "asyncio.open_unix_connection",
}  # fmt: skip


def test_clients_are_opened_at_the_doors_only(module: tuple[str, ast.AST]) -> None:
    name, tree = module
    if name not in ("engine/transport.py", "engine/network.py", "engine/control.py"):
        assert not calls(tree) & CLIENTS
        assert not {found for found in imports(tree) if found.startswith("httpx.")}, "import httpx, to be seen here"
        assert not imports(tree) & {"http.client", "requests", "aiohttp", "httpcore", "urllib.request"}


def test_time_is_read_by_the_clock_only(module: tuple[str, ast.AST]) -> None:
    name, tree = module
    if name != "engine/clock.py":
        assert not {found for found in imports(tree) if found == "time" or found.startswith("time.")}
        now = (".now", ".utcnow", ".today")
        assert not {used for used in attributes(tree) if used.startswith(("date", "datetime")) and used.endswith(now)}


def test_only_the_store_knows_sql(module: tuple[str, ast.AST]) -> None:
    name, tree = module
    if name != "engine/store.py":
        assert not {found for found in imports(tree) if found.partition(".")[0] in ("sqlite3", "aiosqlite")}


def test_the_engine_knows_no_terminal(module: tuple[str, ast.AST]) -> None:
    name, tree = module
    if name.startswith("engine/"):
        assert not {found for found in imports(tree) if found.partition(".")[0] in ("tui_app", "textual", "rich")}


def test_there_is_a_house() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in FILES}
    assert {"engine/transport.py", "engine/clock.py", "engine/store.py"} <= names
    assert "httpx.AsyncClient" in calls(ast.parse((ROOT / "engine/transport.py").read_text("utf-8")))
