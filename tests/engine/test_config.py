"""The config file: what loads, what is refused, and the exact words in which it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from pydantic import BaseModel, ConfigDict

from engine import text
from engine.config import Config, HttpJsonSource, JsonlSink, PolymarketTradesSource, Rate, default_path, load
from engine.errors import ConfigError
from engine.text import plain
from engine.yamlfile import read_yaml, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Write = Callable[[str | bytes], Path]

CANARY = "canary-5ecret-token"
WALLET = "0x" + "aB" * 20
AS_PRINTED = """\
dedup_window_seconds: 90        # forget an identifier this long after it was last served
lateness_seconds: 60            # how late a record may show up behind its neighbours
max_age_seconds: 300            # older than this at first sight: recorded, not acted on
max_entries: 1000000            # bound of a window
start: now                      # or lookback: act on what the first read finds
min_interval_seconds: 0.05      # least gap between two requests to one host
default_rate: 60/60s            # per host, for a URL that matches no limit
headroom: 0.1                   # the part of every limit left unused; 0.0 is allowed
backoff: {base_seconds: 1.0, cap_seconds: 60.0, max_tries: 6}   # six refused tries end a read, not the source
limits:
  - {match: "https://data-api.polymarket.com/*", rate: 800/10s}
  - {match: "https://data-api.polymarket.com/v2/trades*", rate: 300/10s}
sources:
  - {name: whales, type: polymarket_trades, wallets: ["0x..."], poll_interval_seconds: 5}   # no wallets: the bare feed
  - name: anything
    type: http_json
    url: "https://api.example.com/items"
    records: data               # JMESPath to the list
    id: [item_id]               # JMESPath in a record: its identity
    time: created_at            # epoch seconds, milliseconds or ISO 8601
    poll_interval_seconds: 10
sinks:
  - {type: jsonl, path: signals.jsonl}
"""
FEED = "sources: [{name: feed, type: polymarket_trades, poll_interval_seconds: 5}]\n"
A_NAME = "a name is 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
NO_JMESPATH = 'not a JMESPath expression: Expecting: star, got: lbracket: Parse error at column 2, token "[" (LBRACKET)'
AS_BOOL = "(an unquoted yes, no, on or off means true or false)"


@pytest.fixture(autouse=True)
def _vault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_vault", text._Vault())


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "c.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def shortly(value: str | bytes) -> str:
    """The name of a case: some are a mebibyte long."""
    return ascii(value)[:40]


def problems(path: Path, environ: Mapping[str, str] | None = None) -> list[str]:
    """The problems of the file at `path`, without its folder."""
    with pytest.raises(ConfigError) as caught:
        load(path, environ or {})
    assert str(caught.value) == "\n".join(caught.value.problems)
    return [problem.replace(f"{path.parent}{os.sep}", "") for problem in caught.value.problems]


def test_the_config_of_the_design_loads_as_printed(write: Write, tmp_path: Path) -> None:
    path = write(AS_PRINTED)
    assert problems(path) == ["c.yaml:14: sources[0].wallets[0]: a wallet is 0x and 40 hex digits"]
    config = load(write(AS_PRINTED.replace("0x...", WALLET)), {})
    assert config.default_rate == Rate(60, 60.0)
    assert [limit.rate for limit in config.limits] == [Rate(800, 10.0), Rate(300, 10.0)]
    whales, anything = config.sources
    assert isinstance(whales, PolymarketTradesSource)
    assert whales.wallets == [WALLET.lower()]
    assert isinstance(anything, HttpJsonSource)
    assert (anything.records, anything.id, anything.time) == ("data", ["item_id"], "created_at")
    assert config.sinks == [JsonlSink(type="jsonl", path=tmp_path / "signals.jsonl")]
    # What it prints are the defaults.
    default = load(write(FEED), {})
    assert config.model_copy(update={"limits": [], "sources": default.sources, "sinks": []}) == default


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "c.yaml:1: the file is empty"),
        (b"# nothing\n", "c.yaml:1: the file is empty"),
        (b"- 1", "c.yaml:1: expected keys with values, got a list"),
        (b"text", "c.yaml:1: expected keys with values, got text"),
        (b"a: 1\nb: \xff", "c.yaml:2: not UTF-8 (byte 0xff)"),
        (b"a: 1\nb: \x1b[31m", "c.yaml:2: not YAML: the character U+001B is not allowed"),
        (b"a: [1\nb: 2", "c.yaml:2: not YAML: expected ',' or ']', but got ':'"),
        (b"a: 'x", "c.yaml:1: not YAML: found unexpected end of stream"),
        (b"\na: {b: ${NAME}}",
         "c.yaml:2: not YAML: expected ',' or '}', but got '{' (put a value with ${NAME} in quotes here)"),
        (b"a: *b", "c.yaml:1: not YAML: found undefined alias 'b'"),
        (b"a: 1\n---\na: 2", "c.yaml:2: not YAML: but found another document"),
        (b"a: &a [*a]", "c.yaml:1: nested more than 32 deep"),
        (b"[" * 100_000, "c.yaml:1: nested more than 32 deep"),
        (b"a: " + b"[" * 40 + b"]" * 40, "c.yaml:1: nested more than 32 deep"),
        (b"#" * (1 << 20) + b"#", "c.yaml: larger than 1 MiB"),
        (b"a: [%s]" % (b"1," * 100_000), "c.yaml:1: more than 100000 values"),
        (b"a0: &a0 [1]\n" + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 10))
                                     for n in range(1, 10)), "c.yaml:1: more than 100000 values"),
    ],
    ids=shortly,
)  # fmt: skip
def test_a_file_that_is_no_yaml_mapping(write: Write, content: bytes, reason: str) -> None:
    assert problems(write(content)) == [reason]


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(tmp_path / "none.yaml") == ["none.yaml: cannot be read: No such file or directory"]
    assert problems(tmp_path) == [f"{tmp_path.name}: cannot be read: Is a directory"]
    assert problems(tmp_path / "nul\0") == ["nul\ufffd: cannot be read: embedded null byte"]

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert problems(tmp_path / "c.yaml") == ["c.yaml: cannot be read: Permission denied"]


@pytest.mark.parametrize(
    "lines, reason",
    [
        ("dedup_window_secnds: 90", "dedup_window_secnds: unknown key, did you mean dedup_window_seconds?"),
        ("zzz: 90", "zzz: unknown key"),
        ("no: 1", "no: unknown key"),
        ("dedup_window_seconds: 0", "dedup_window_seconds: must be above 0"),
        ("dedup_window_seconds: -1", "dedup_window_seconds: must be above 0"),
        ("dedup_window_seconds: 99999999", "dedup_window_seconds: must be at most 2592000"),
        ("dedup_window_seconds: .inf", "dedup_window_seconds: must be a finite number"),
        ("dedup_window_seconds: .nan", "dedup_window_seconds: must be a finite number"),
        (f"dedup_window_seconds: 1{'0' * 400}", "dedup_window_seconds: expected a number, got one that is too large"),
        (f"dedup_window_seconds: 1{'0' * 5000}", "dedup_window_seconds: not a valid int"),
        ("dedup_window_seconds: true", "dedup_window_seconds: expected a number, got true"),
        ("dedup_window_seconds: '90'", "dedup_window_seconds: expected a number, got text"),
        ("dedup_window_seconds:", "dedup_window_seconds: expected a number, got nothing"),
        ("max_entries: 1.5", "max_entries: expected a whole number, got a number with a fraction"),
        ("max_entries: yes", "max_entries: expected a whole number, got true"),
        ("headroom: 1", "headroom: must be at most 0.9"),
        ("start: later", "start: must be 'now' or 'lookback'"),
        ("default_rate: 60",
         "default_rate: a rate is REQUESTS/WINDOW with the unit s, m or h, for instance 300/10s"),
        ("default_rate: 0/10s",
         "default_rate: a rate is at least 1 request, in at most 24 h, and at most 10000 requests a second"),
        ("backoff: {base_seconds: 100.0}", "backoff: cap_seconds is below base_seconds"),
        ("backoff: 5", "backoff: expected keys with values, got a number"),
        ("backoff: {max_trys: 5}", "backoff.max_trys: unknown key, did you mean max_tries?"),
        ("limits: {}", "limits: expected a list, got keys with values"),
        ("limits: [{match: 'ftp://x', rate: 1/s}]",
         "limits[0].match: a URL starts with http:// or https:// and has no spaces"),
        ("limits: [{match: 'http://x'}]", "limits[0].rate: is missing"),
        ("sinks: [{type: csv, path: x}]", "sinks[0].type: must be 'jsonl'"),
        ("sinks: [{type: jsonl, path: 5}]", "sinks[0].path: expected a path, got a number"),
        ("sinks: [{type: jsonl, path: '..'}]", "sinks[0].path: a path names a file"),
        ("sinks: [{type: jsonl, path: ./a}, {type: jsonl, path: a}]", "sink path given twice: a"),
        ("start: !!python/object/apply:os.system [ls]",
         "start: the tag !!python/object/apply:os.system is not supported"),
        ("start: !!bool maybe", "start: not a valid bool"),
        ("{a: 1}: 1", "a key must be plain text"),
        ("<<: {start: now}", "<<: unknown key"),
    ],
    ids=shortly,
)  # fmt: skip
def test_what_is_refused_at_the_top(write: Write, tmp_path: Path, lines: str, reason: str) -> None:
    (problem,) = problems(write(f"{FEED}{lines}\n"))
    line = 1 if reason.startswith("sink path") else 2  # a complaint about the whole stands at its start
    assert problem.replace(f"{tmp_path}/", "") == f"c.yaml:{line}: {reason}"


@pytest.mark.parametrize(
    "fields, reasons",
    [
        ("type: htp_json",
         ["type: unknown type 'htp_json', did you mean http_json?; known: http_json, polymarket_trades"]),
        ("type: 5", ["type: unknown type '5'; known: http_json, polymarket_trades"]),
        ("kind: http_json", ["type: is missing; known: http_json, polymarket_trades"]),
        ("type: polymarket_trades, walets: []", ["walets: unknown key, did you mean wallets?"]),
        ("type: polymarket_trades, wallets: [no]",
         [f"wallets[0]: expected text, got false {AS_BOOL}: put it in quotes"]),
        (f"type: polymarket_trades, wallets: ['{WALLET}', 0x{'1' * 40}]",
         ["wallets[1]: expected text, got a number (unquoted digits and 0x... are numbers): put it in quotes"]),
        ("type: polymarket_trades, wallets: [1.5]",
         ["wallets[0]: expected text, got a number with a fraction: put it in quotes"]),
        (f"type: polymarket_trades, wallets: ['{WALLET}', '{WALLET.lower()}']",
         ["wallets[1]: given twice (first on line 1)"]),
        ("type: polymarket_trades, max_pages: 0", ["max_pages: must be at least 1"]),
        (
            'type: polymarket_trades, base_url: "http://a.example?x=1"',
            ["base_url: a base URL has no query: /v2/trades and its parameters are put after it"],
        ),
        ("type: http_json, url: 'https://h/'", ["id: is missing"]),
        ("type: http_json, url: 'https://h/', id: item", ["id: expected a list, got text"]),
        ("type: http_json, url: 'https://h/', id: []", ["id: needs at least 1, has 0"]),
        (f"type: http_json, url: 'https://h/', id: [{'a,' * 17}]", ["id: takes at most 16"]),
        ("type: http_json, url: 'https://h/', id: ['a[[']",
         [f"id[0]: {NO_JMESPATH}"]),
        ("type: http_json, url: 'https://h/', id: ['data.[items']",
         ["id[0]: not a JMESPath expression: Invalid jmespath expression: Incomplete expression"]),
        ("type: http_json, url: 'https://[', id: [a]", ["url: Invalid IPv6 URL"]),
        ("type: http_json, url: 'https://h/', id: [a], headers: {'A b': x, B: 5, C: \"x\\ny\", D: ' x', E: ''}",
         ["headers.A b: a header's name is letters, digits and dashes",
          "headers.B: expected text, got a number (unquoted digits and 0x... are numbers): put it in quotes",
          *(f"headers.{name}: a header's value is one line of ASCII, without blanks around it" for name in "CDE")]),
    ],
)  # fmt: skip
def test_what_is_refused_in_a_source(write: Write, fields: str, reasons: list[str]) -> None:
    path = write(f"sources: [{{name: a, poll_interval_seconds: 5, {fields}}}]")
    assert problems(path) == [f"c.yaml:1: sources[0].{reason}" for reason in reasons]


def test_a_source_is_needed_and_is_keys_with_values(write: Write) -> None:
    assert problems(write("start: now")) == ["c.yaml:1: sources: is missing"]
    assert problems(write("start: now\nsources: []")) == ["c.yaml:2: sources: needs at least 1, has 0"]
    assert problems(write("start: now\nsources:")) == ["c.yaml:2: sources: expected a list, got nothing"]
    assert problems(write("sources:\n  - 5")) == ["c.yaml:2: sources[0]: expected keys with values, got a number"]


def test_every_problem_is_told_at_once_in_line_order(write: Write) -> None:
    path = write("""\
sinks: [{type: jsonl}]
start: now
sources:
  - name: a
    type: http_json
    url: "https://${HOST}/${bad-name}"
    times: 1
    id: [x]
    poll_interval_seconds: 5
  - {name: a, type: polymarket_trades}
  - {name: "${UNSET}", type: "${UNSET}"}
  - {name: "b c", type: polymarket_trades, poll_interval_seconds: 0}
  - {name: , type: http_json, url: "https://h/", id: [x], poll_interval_seconds: 1}
  - {name: , type: http_json, url: "https://h/", id: [x], poll_interval_seconds: 1}
start: never
sinks: []
lateness_seconds: -1
""")
    assert problems(path) == [
        "c.yaml:1: sinks[0].path: is missing",
        "c.yaml:6: sources[0].url: the environment variable HOST is not set",
        "c.yaml:6: sources[0].url: a variable is written ${NAME}, and a literal ${ is $${",
        "c.yaml:7: sources[0].times: unknown key, did you mean time?",
        "c.yaml:10: sources[1].name: given twice (first on line 4)",
        "c.yaml:10: sources[1].poll_interval_seconds: is missing",
        "c.yaml:11: sources[2].name: the environment variable UNSET is not set",
        "c.yaml:11: sources[2].type: the environment variable UNSET is not set",
        f"c.yaml:12: sources[3].name: {A_NAME}",
        "c.yaml:12: sources[3].poll_interval_seconds: must be at least 0.1",
        "c.yaml:13: sources[4].name: expected text, got nothing",
        "c.yaml:14: sources[5].name: expected text, got nothing",
        "c.yaml:15: start: given twice (first on line 2)",
        "c.yaml:16: sinks: given twice (first on line 1)",
        "c.yaml:17: lateness_seconds: must be at least 0",
    ]


HEADERS = """\
sources:
  - name: a
    type: http_json
    url: "https://api.example.com/${PATH_PART}"
    headers: {X-Key: "${TOKEN}", Authorization: "Bearer literal-5ecret", X-Literal: "$${TOKEN}"}
    id: [x]
    poll_interval_seconds: 5
"""


def test_variables_come_from_the_environment(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "${PATH_PART}-of-5ecret")
    monkeypatch.setenv("PATH_PART", "items-5ecret")
    (source,) = load(write(HEADERS)).sources
    assert isinstance(source, HttpJsonSource)
    assert source.url == "https://api.example.com/items-5ecret"
    shown = {name: value.get_secret_value() for name, value in source.headers.items()}
    assert shown == {
        "X-Key": "${PATH_PART}-of-5ecret",  # what was put in is not read again
        "Authorization": "Bearer literal-5ecret",
        "X-Literal": "${TOKEN}",
    }
    for secret in ("items-5ecret", "${PATH_PART}-of-5ecret", "Bearer literal-5ecret", "literal-5ecret"):
        assert plain(f"<{secret}>") == "<***>"
    assert "5ecret" not in repr(source.headers)


def test_a_variable_is_always_text(write: Write) -> None:
    path = write(FEED + 'max_entries: "${N}"')
    assert problems(path, {"N": "12345"}) == ["c.yaml:2: max_entries: expected a whole number, got text"]


def test_no_secret_is_in_any_problem(write: Write) -> None:
    values = ["${TOKEN}", CANARY, f"{CANARY}\\n", f"http://u:{CANARY}@h/ x", f"[{CANARY}"]
    places = ["name", "type", "url", "records", "time", "poll_interval_seconds", "X: {a", "headers", "id", "nonsense"]
    for value in values:
        for place in places:
            if value != "${TOKEN}" and place in ("type", "records", "time", "id"):
                continue  # a literal that is no secret by its place: the message may name it
            path = write(
                f'sources:\n  - {{poll_interval_seconds: 0, type: http_json, {place}: "{value}"{"}" * (":" in place)}}}'
            )
            assert "5ecret" not in "\n".join(problems(path, {"TOKEN": CANARY}))
            path = write(f'sources:\n  - {{type: http_json, headers: {{a: "{value}", "b c": "{value}"}}}}')
            assert "5ecret" not in "\n".join(problems(path, {"TOKEN": CANARY}))
            text._vault = text._Vault()


def test_a_password_in_a_url_is_concealed(write: Write) -> None:
    load(write(FEED + "limits: [{match: 'https://user:p%40ss-5ecret@h/*', rate: 1/s}]"), {})
    assert plain("p%40ss-5ecret p@ss-5ecret") == "*** ***"


def test_paths_are_relative_to_the_folder_of_the_config(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    sinks = "sinks: [" + ", ".join(f"{{type: jsonl, path: '{p}'}}" for p in ("a", "../b/c", "~/d", "/e", "${F}")) + "]"
    path = write(FEED + sinks)
    expected = [tmp_path / "a", tmp_path.parent / "b/c", Path("/home/ana/d"), Path("/e"), tmp_path / "f"]
    assert [sink.path for sink in load(path, {"F": "f"}).sinks] == expected
    monkeypatch.chdir(tmp_path)
    assert [sink.path for sink in load(Path("c.yaml"), {"F": "f"}).sinks] == expected


def test_an_alias_is_its_value_and_a_bom_and_windows_lines_are_fine(write: Write) -> None:
    content = FEED + f"limits: [{{match: &m 'https://h/*', rate: 1/s}}, {{match: *m, rate: 2/m}}]\r\nstrt: {WALLET}\r\n"
    assert problems(write("\ufeff" + content)) == ["c.yaml:3: strt: unknown key, did you mean start?"]
    assert [limit.match for limit in load(write(content.replace("strt", "#")), {}).limits] == ["https://h/*"] * 2


def test_the_default_path_is_in_the_users_config_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.config.user_config_path", lambda app, *, appauthor: Path("/cfg") / app)
    assert default_path() == Path("/cfg/polltop/config.yaml")


def test_config_made_in_code_needs_no_file() -> None:
    feed = {"name": "feed", "type": "polymarket_trades", "poll_interval_seconds": 5}
    config = Config.model_validate({"sources": [feed], "sinks": [{"type": "jsonl", "path": "x"}]})
    assert config.sinks[0].path == Path.cwd() / "x"


def test_other_files_use_the_same_reader(write: Write) -> None:
    class Theme(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)
        base: Literal["dark", "light"] | None = None
        colours: dict[str, list[str | int]] = {}

    document = read_yaml(write("base: dark\ncolours:\n  no: [x, 2024-01-01]\n"))
    assert document.lines["colours", "no", 1] == 3
    assert validate(Theme, document).colours == {"no": ["x", "2024-01-01"]}
    with pytest.raises(ConfigError, match=r"c\.yaml:2: bas: unknown key, did you mean base\?"):
        validate(Theme, read_yaml(write("\nbas: dark")))
