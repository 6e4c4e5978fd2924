"""`polltop check` and `polltop explain`: the numbers of a config before anything is sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.config import load
from engine.plan import plan_of
from tests.support import command
from tests.support.engines import Api, ListSink, config_of, items_source, running, trades_source, wait
from tests.support.virtual import VirtualClock, run

CONFIG = """\
headroom: 0.1
limits:
  - {match: "https://data-api.polymarket.com/*", rate: 800/10s}
  - {match: "https://data-api.polymarket.com/v2/trades*", rate: 4/10s, sources: [whales]}
  - {match: "https://elsewhere.example/*", rate: 5/1s}
sources:
  - name: whales
    type: polymarket_trades
    wallets: ["0x1111111111111111111111111111111111111111", "0x2222222222222222222222222222222222222222"]
    poll_interval_seconds: 5
  - {name: feed, type: polymarket_trades, poll_interval_seconds: 2}
  - {name: news, type: http_json, url: "https://api.example.com/items", id: [id], poll_interval_seconds: 30}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def rows(text: str) -> list[list[str]]:
    """Lines of tables, cut at two spaces and more."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.startswith("  ")]


def test_check_says_who_asks_how_often_under_which_limits_and_whether_it_fits(config: Path) -> None:
    done = command.run("check", "--config", config)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"{config}: 3 sources, 3 limits"
    assert "whales: polymarket_trades, 2 streams, each every 5.0s: 0.4 requests/s" in done.stdout
    assert "news: http_json, 1 stream, every 30s: 0.0333 requests/s" in done.stdout
    found = rows(done.stdout)
    assert ["0.4/s", "0.4/s", "0.36/s", "111%", "https://data-api.polymarket.com/v2/trades*", "of whales"] in [
        [*row[:4], *row[4].split(" ", 1)] for row in found if len(row) == 5
    ]
    assert ["0.4/s", "0.9/s", "72/s", "1.3%", "https://data-api.polymarket.com/*"] in found
    assert ["0.5/s", "0.9/s", "72/s", "1.3%", "https://data-api.polymarket.com/*"] in found
    assert ["0.0333/s", "0.0333/s", "0.9/s", "3.7%"] in [row[:4] for row in found]
    assert "default_rate, as no limit matches: https://api.example.com" in done.stdout
    assert ["does not fit: a beat will take 5.6s"] in found
    assert ["fits: 22.2 times as many requests would"] in found
    assert "a record is kept 2m30s: 150 entries for each new record a second; max_entries (1,000,000)" in done.stdout
    assert "No source meets: https://elsewhere.example/*" in done.stdout
    (warning,) = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert "0.4/s are asked for, 0.36/s are granted" in warning
    assert warning.endswith("poll_interval_seconds that would fit: whales 5.56")


def test_the_interval_that_it_proposes_does_fit(config: Path) -> None:
    config.write_text(CONFIG.replace("poll_interval_seconds: 5", "poll_interval_seconds: 5.56"), encoding="utf-8")
    assert command.run("check", "--config", config).stdout.splitlines()[-2] == "All beats fit."
    assert plan_of(load(config), VirtualClock()).warnings == ()


def test_a_beat_that_does_not_fit_is_said_at_the_start_and_comes_true(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        api = Api(clock)
        config = config_of(items_source(), default_rate="6/60s", headroom=0.0)
        async with running(tmp_path, config, clock, api.transport, ListSink()) as engine:
            await wait(clock, 200)
            said = [event.text for event in engine.events(0)[0] if event.level == "warning"]
            assert said == list(plan_of(config, clock).warnings)
            assert "0.2/s are asked for, 0.1/s are granted" in said[0]
            assert len(api.log) == pytest.approx(20, abs=1)
            # What was skipped is counted, and nothing queues.
            assert engine.snapshot().sources[0].skipped == pytest.approx(20, abs=2)
            assert max(limit.queue for limit in engine.snapshot().limits) <= 1

    run(scenario)


def test_a_plan_says_what_an_engine_will_do(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        api = Api(clock)
        config = config_of(items_source(poll_interval_seconds=3.0), trades_source(wallets=["0x" + "ab" * 20]))
        plan = plan_of(config, clock)
        assert plan.warnings == ()
        async with running(tmp_path, config, clock, api.transport, ListSink()):
            await wait(clock, 300)
        assert len(api.log) / 300 == pytest.approx(sum(source.per_second for source in plan.sources), rel=0.03)

    run(scenario)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("https://data-api.polymarket.com/v2/trades?limit=1",), ["https://data-api.polymarket.com/*"]),
        (
            ("https://data-api.polymarket.com/v2/trades?limit=1", "--source", "whales"),
            ["https://data-api.polymarket.com/*", "https://data-api.polymarket.com/v2/trades* of whales"],
        ),
        (("HTTPS://ELSEWHERE.example:443/x", "--method", "post"), ["https://elsewhere.example/*"]),
        (("https://nowhere.example/x",), ["default_rate, as no limit matches: https://nowhere.example"]),
    ],
)
def test_explain_lists_the_limits_of_a_url(config: Path, arguments: tuple[str, ...], expected: list[str]) -> None:
    done = command.run("explain", "--config", config, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    *names, gap = [row[3] for row in rows(done.stdout)[1:]]
    assert names == expected
    assert gap.startswith("min_interval_seconds: ")
    assert gap.endswith(", 64 at a time")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "foo"), "URL: foo: give all of it"),
        (("explain", "ftp://a.example/"), "URL: ftp://a.example/: give all of it"),
        (("explain", "http://[::1/"), "URL: http://[::1/: "),
        (("explain", "http://a.example/", "--source", "x"), "--source: no source is called x; there are whales, feed"),
        (("--demo", "check"), "--demo: not for `check`"),
        (("--no-ui", "--duration", "3", "check"), "--no-ui, --duration: not for `check`"),
        (("check", "--config", "nowhere.yaml"), "nowhere.yaml"),
        (("chek",), "Did you mean 'check'?"),
    ],
)
def test_what_cannot_be_meant_is_said_without_a_traceback(config: Path, arguments: tuple[str, ...], said: str) -> None:
    given = ["--config", str(config), *arguments] if arguments[0] == "explain" else list(arguments)
    done = command.run(*given)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_config_they_say_what_to_do(tmp_path: Path) -> None:
    for arguments in (("check",), ("explain", "http://a.example/")):
        done = command.run(*arguments, env=command.environment(HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path)))
        assert done.returncode == 2
        assert "polltop --demo" in done.stderr


def test_a_bad_config_is_refused_as_it_is_at_the_start(config: Path) -> None:
    config.write_text(CONFIG.replace("[whales]", "[wales]"), encoding="utf-8")
    done = command.run("check", "--config", config)
    assert done.returncode == 2
    assert "limits name sources that do not exist: wales" in done.stderr
    assert done.stderr.startswith(f"{config}:")
