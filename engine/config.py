"""The config: pydantic models whose every field is read, and `load()` for the YAML that fills them.

Rates are strings (`300/10s`), durations carry their unit in the key. `ConfigError` lists every problem found as
`FILE:LINE: field: reason`.

Validation is strict: text is no number and `true` is no 1. What is taken from the environment and every header value is
concealed from logs and screens.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

import jmespath
from jmespath.exceptions import JMESPathError
from platformdirs import user_config_path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from engine.text import conceal
from engine.yamlfile import Document, Loc, read_yaml, validate

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Backoff",
    "Config",
    "HttpJsonSource",
    "JsonlSink",
    "LimitConfig",
    "PolymarketTradesSource",
    "Rate",
    "SourceConfig",
    "default_path",
    "load",
]

_DAY = 86_400.0
_PUBLIC_HEADERS = {"accept", "accept-language", "content-type", "user-agent"}
"""Their values are words that may stand anywhere: to conceal them would blot out half a screen."""
_RATE = re.compile(r"([0-9]{1,9})/([0-9]{1,6}(?:\.[0-9]{1,6})?)?(s|m|h)")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `requests` in any `seconds`."""

    requests: int
    seconds: float

    @classmethod
    def parse(cls, text: object) -> Rate:
        """Read `300/10s`, `60/m`, `1000/1h`. Raises ValueError, with what to write instead."""
        if isinstance(text, cls):
            return text
        found = _RATE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError("a rate is REQUESTS/WINDOW with the unit s, m or h, for instance 300/10s")
        rate = cls(int(found[1]), float(found[2] or 1) * _UNIT_SECONDS[found[3]])
        if rate.requests < 1 or not 0.001 <= rate.seconds <= _DAY or rate.requests / rate.seconds > 10_000:  # noqa: PLR2004
            raise ValueError("a rate is at least 1 request, in at most 24 h, and at most 10000 requests a second")
        return rate

    def __str__(self) -> str:
        return f"{self.requests}/{self.seconds:g}s"


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/?#]+[^\s]*", value):
        raise ValueError("a URL starts with http:// or https:// and has no spaces")
    if password := urlsplit(value).password:
        conceal(password, unquote(password))
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", value):
        raise ValueError("a name is 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
    return value


def _header_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", value):
        raise ValueError("a header's name is letters, digits and dashes")
    return value


def _header_value(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not re.fullmatch(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?", text):
        raise ValueError("a header's value is one line of ASCII, without blanks around it")
    return value


def _absolute(value: Path, info: ValidationInfo) -> Path:
    """`~` is the home folder; what is relative is so to the config's folder (without a config: where we run)."""
    try:
        path = (info.context or {}).get("folder", Path.cwd()) / value.expanduser()
    except RuntimeError as error:
        raise ValueError("the home folder is not known") from error
    if value.name in ("", ".."):
        raise ValueError("a path names a file")
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links


def _jmespath(value: str) -> str:
    try:
        jmespath.compile(value)
    except JMESPathError as error:
        what = str(error).splitlines()[0].partition(", for expression")[0].rstrip(":")
        raise ValueError(f"not a JMESPath expression: {what}") from error
    return value


def _wallet(value: str) -> str:
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", value):
        raise ValueError("a wallet is 0x and 40 hex digits")
    return value.lower()


def _method(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{1,20}", value):
        raise ValueError("a method is a word, as GET")
    return value.upper()


RateText = Annotated[Rate, BeforeValidator(Rate.parse), PlainSerializer(str)]
Url = Annotated[str, AfterValidator(_url)]
Name = Annotated[str, AfterValidator(_name)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderValue = Annotated[SecretStr, AfterValidator(_header_value)]
JmesPath = Annotated[str, AfterValidator(_jmespath)]
Wallet = Annotated[str, AfterValidator(_wallet)]
Method = Annotated[str, AfterValidator(_method)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False, strict=True)


class Backoff(_Model):
    """Full jitter: `uniform(0, min(cap_seconds, base_seconds * 2**attempt))`, added to what the server asks for."""

    base_seconds: float = Field(1.0, gt=0, le=3600)
    cap_seconds: float = Field(60.0, gt=0, le=_DAY)
    max_tries: int = Field(6, ge=1, le=100)
    """Refused tries that end a read (not the source)."""

    @model_validator(mode="after")
    def _cap_above_base(self) -> Self:
        if self.cap_seconds < self.base_seconds:
            raise ValueError("cap_seconds is below base_seconds")
        return self


class LimitConfig(_Model):
    """At most `rate` for the URLs that `match`, where `*` stands for any characters."""

    match: Url
    rate: RateText
    methods: list[Method] = Field(default_factory=list, max_length=16)
    """Only requests by these methods; without any, all."""
    sources: list[Name] = Field(default_factory=list, max_length=1000)
    """Only requests of these sources; without any, all."""
    cost: dict[Url, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(default_factory=dict, max_length=1000)
    """What a request takes of the rate, by the first pattern that matches its URL; 1 where none does."""
    max_in_flight: int | None = Field(None, ge=1, le=10_000)
    """Requests under this limit at a time."""

    @model_validator(mode="after")
    def _affordable(self) -> Self:
        dear = [match for match, cost in self.cost.items() if cost > self.rate.requests]
        if dear:
            raise ValueError(f"costs more than the whole rate, and could never be sent: {', '.join(dear)}")
        return self

    @property
    def name(self) -> str:
        """The pattern, and what else narrows it; for people."""
        methods = f"{','.join(self.methods)} " if self.methods else ""
        sources = f" of {','.join(self.sources)}" if self.sources else ""
        return f"{methods}{self.match}{sources}"


class _Source(_Model):
    name: Name
    poll_interval_seconds: float = Field(ge=0.1, le=_DAY)
    """The beat of each stream, start to start."""


class HttpJsonSource(_Source):
    """Any JSON API that answers GET with a list of records."""

    type: Literal["http_json"]
    url: Url
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent with each request, to this URL's origin only."""

    @model_validator(mode="after")
    def _conceal_headers(self) -> Self:
        for name, value in self.headers.items():
            if name.lower() not in _PUBLIC_HEADERS:
                text = value.get_secret_value()
                conceal(text, text.rpartition(" ")[2])  # `Bearer TOKEN`: a server may echo the token alone
        return self

    records: JmesPath = "@"
    """Path to the list of records in the answer."""
    id: list[JmesPath] = Field(min_length=1, max_length=16)
    """Paths within a record: the values that identify it."""
    time: JmesPath | None = None
    """Path to a record's own time: epoch seconds, milliseconds or ISO 8601."""


class PolymarketTradesSource(_Source):
    """Trades of the Polymarket Data API v2: of the given wallets, or the bare feed."""

    type: Literal["polymarket_trades"]
    wallets: list[Wallet] = Field(default_factory=list, max_length=1000)
    """One stream for each; without any, one stream of the whole feed (taker side, so that a fill comes once)."""
    base_url: Url = "https://data-api.polymarket.com"
    max_pages: int = Field(20, ge=1, le=1000)
    """Pages of 1000 rows that one read walks at most; a walk that needs more is committed with a counted gap."""

    @field_validator("base_url")
    @classmethod
    def _no_query(cls, value: str) -> str:
        if set("?#") & set(value):
            raise ValueError("a base URL has no query: /v2/trades and its parameters are put after it")
        return value

    @model_validator(mode="after")
    def _wallets_once(self) -> Self:
        twice = {wallet for wallet in self.wallets if self.wallets.count(wallet) > 1}
        if twice:
            raise ValueError(f"wallets given twice: {', '.join(sorted(twice))}")
        return self


SourceConfig = Annotated[HttpJsonSource | PolymarketTradesSource, Field(discriminator="type")]


class JsonlSink(_Model):
    """Appends each signal as one JSON line to a file."""

    type: Literal["jsonl"]
    path: Annotated[Path, Field(strict=False), AfterValidator(_absolute)]
    """Relative to the config's folder; `~` is the home folder."""


class Config(_Model):
    """The whole config. Field by field with its meaning in README.md."""

    dedup_window_seconds: float = Field(90.0, gt=0, le=30 * _DAY)
    """An identifier is forgotten this long after its source stopped serving it."""
    lateness_seconds: float = Field(60.0, ge=0, le=7 * _DAY)
    """How late a record may show up behind its neighbours."""
    max_age_seconds: float = Field(300.0, gt=0, le=365 * _DAY)
    """A record older than this at first sight is recorded, not acted on."""
    max_entries: int = Field(1_000_000, ge=1, le=100_000_000)
    """Bound of a window."""
    start: Literal["now", "lookback"] = "now"
    """Whether the first read of a stream is only remembered, or acted on."""
    min_interval_seconds: float = Field(0.05, ge=0, le=3600)
    """Least gap between two requests to one host."""
    default_rate: RateText = Rate(60, 60.0)
    """Per host, for a URL that matches no limit."""
    headroom: float = Field(0.1, ge=0, le=0.9)
    """The part of every limit left unused."""
    max_in_flight: int = Field(64, ge=1, le=10_000)
    """Requests to one host at a time."""
    max_cooldown_seconds: float = Field(900.0, ge=0, le=_DAY)
    """A cool-down longer than this may be overridden by polling the source by hand."""
    backoff: Backoff = Backoff()
    limits: list[LimitConfig] = Field(default_factory=list, max_length=1000)
    sources: list[SourceConfig] = Field(min_length=1, max_length=1000)
    sinks: list[JsonlSink] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _names_once(self) -> Self:
        for what, names in (
            ("source name", [source.name for source in self.sources]),
            ("sink path", [str(sink.path) for sink in self.sinks]),
        ):
            twice = {name for name in names if names.count(name) > 1}
            if twice:
                raise ValueError(f"{what} given twice: {', '.join(sorted(twice))}")
        return self

    @model_validator(mode="after")
    def _limits_of_sources(self) -> Self:
        names = {source.name for source in self.sources}
        lost = {name for limit in self.limits for name in limit.sources} - names
        if lost:
            raise ValueError(f"limits name sources that do not exist: {', '.join(sorted(lost))}")
        return self


def default_path() -> Path:
    """`config.yaml` in the platform's config folder of polltop; it may not exist."""
    return user_config_path("polltop", appauthor=False) / "config.yaml"


def load(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Read the config at `path`, with `${NAME}` taken from `environ` (default: this process's). Raises ConfigError."""
    document = read_yaml(path)
    document.data = _expanded(document, document.data, (), os.environ if environ is None else environ)
    _refuse_repeats(document)
    return validate(Config, document, {"folder": Path(os.path.abspath(path)).parent})  # noqa: PTH100 - see _absolute


_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


def _expanded(document: Document, value: Any, loc: Loc, environ: Mapping[str, str]) -> Any:
    def substitute(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if found[1] is None:
            document.add(loc, "a variable is written ${NAME}, and a literal ${ is $${")
        elif (taken := environ.get(found[1])) is None:
            document.add(loc, f"the environment variable {found[1]} is not set")
        else:
            conceal(taken)
            return taken
        return found[0]

    if isinstance(value, dict):
        return {key: _expanded(document, item, (*loc, key), environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(document, item, (*loc, at), environ) for at, item in enumerate(value)]
    return _VARIABLE.sub(substitute, value) if isinstance(value, str) else value


def _refuse_repeats(document: Document) -> None:
    """Tell repeats with both lines, beside all other problems: the models' own checks run when all else is right."""
    first: dict[tuple[Loc, str], int] = {}
    for loc, line in document.lines.items():
        match loc:
            case ("sources", int(), "name") | ("sinks", int(), "path"):
                scope: Loc = (loc[0],)
            case ("sources", int(), "wallets", int()):
                scope = loc[:3]
            case _:
                continue
        value: Any = document.data
        for part in loc:
            value = value[part]
        if not isinstance(value, str):
            continue
        same = (scope, value.lower() if "wallets" in loc else value)
        if same in first:
            document.add(loc, f"given twice (first on line {first[same]})")
        first.setdefault(same, line)
