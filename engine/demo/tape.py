"""A recording played again: rows of a JSON lines file, re-stamped so that they happen now."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.demo.market import Appearance, Entry, Ledger, Page, Query, Row
from engine.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Tape"]

_MOST_PROBLEMS = 20
_DEFAULT_DURATION_SECONDS = 600.0
_DELAYS = (0.0, 3.0)
_LATEST = 253_402_300_799  # the end of the year 9999

_Timestamp = Annotated[int, Field(gt=0, le=_LATEST)]


class _V2(BaseModel):
    """What must hold for a row of `/v2/trades`; fields that are not documented are dropped."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    proxy_wallet: str
    side: Literal["BUY", "SELL"]
    token_id: str
    condition_id: str
    size: float
    price: float
    timestamp: _Timestamp
    title: str
    slug: str
    icon: str
    event_slug: str
    outcome: str
    outcome_index: int
    name: str
    pseudonym: str
    bio: str
    profile_image: str
    profile_image_optimized: str
    transaction_hash: str


class _V1(BaseModel):
    """The least that a row of the v1 API has; it is served as recorded."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")

    proxyWallet: str  # noqa: N815 - the API's own names
    transactionHash: str  # noqa: N815
    timestamp: _Timestamp


@dataclass(frozen=True, slots=True)
class _Recorded(Entry):
    """A re-stamped row."""

    recorded: Row

    def row(self, now: float) -> Row:  # noqa: ARG002 - a recording does not change
        return self.recorded


class Tape:
    """A market whose rows were recorded. Rows of the v2 shape are played; v1 rows are only served at `/records`."""

    def __init__(
        self,
        records: list[dict[str, Any]],
        start: float,
        rng: random.Random,
        *,
        speed: float | None = None,
        history: float = 0.1,
        delays: tuple[float, float] = _DELAYS,
    ) -> None:
        """Lay the rows out in time.

        Args:
            records: Recorded rows, all of one shape; their order is the sequence among rows of one second.
            start: Wall time at which the first row after the history plays.
            rng: Draws the delays.
            speed: Tape seconds per real second; without it the whole tape lasts ten minutes.
            history: Share of the rows that lie before `start`, at the same speed, visible from the start.
            delays: Least and most seconds between a row's stamp and its appearance.
        """
        if speed is not None and not 0 < speed < math.inf:
            raise ValueError("the speed of a tape is a number above 0")
        self.start = start
        self.records = records
        self.is_v1 = bool(records) and "proxyWallet" in records[0]
        times = sorted(record["timestamp"] for record in records)
        span = times[-1] - times[0] if times else 0
        self.speed = speed if speed is not None else max(span / _DEFAULT_DURATION_SECONDS, 1e-6)
        past = min(int(len(times) * history), len(times) - 1)
        first_live = times[past] if times else 0
        self._ledger = Ledger(
            []
            if self.is_v1
            else self._entries(cast("list[Row]", records), first_live, random.Random(rng.getrandbits(64)), delays),
        )
        self.ends = max((seen.visible_at for seen in self.appearances()), default=start)
        """Wall time at which the last row becomes visible."""

    @classmethod
    def load(
        cls,
        path: Path,
        start: float,
        rng: random.Random,
        *,
        speed: float | None = None,
        history: float = 0.1,
        delays: tuple[float, float] = _DELAYS,
    ) -> Self:
        """Read the JSON lines at `path`. Raises ConfigError with `FILE:LINE: reason` for each broken line."""
        return cls(_read(path), start, rng, speed=speed, history=history, delays=delays)

    def __len__(self) -> int:
        """Rows that play."""
        return len(self._ledger)

    def page(self, now: float, query: Query, limit: int) -> Page:
        return self._ledger.page(now, query, limit)

    def visible(self, now: float) -> list[Row]:
        return self.page(now, Query(taker_only=False), len(self._ledger)).rows

    def appearances(self, now: float = math.inf) -> list[Appearance]:
        """See `Market.appearances`; a tape knows its future too."""
        return self._ledger.appearances(now)

    def busiest(self, count: int) -> list[str]:
        return self._ledger.busiest(count)

    def _entries(
        self,
        rows: list[Row],
        first_live: int,
        rng: random.Random,
        delays: tuple[float, float],
    ) -> list[_Recorded]:
        entries = []
        for sequence, row in enumerate(rows):
            stamp = math.floor(self.start + (row["timestamp"] - first_live) / self.speed)
            # Every row draws its delay, so that a longer history leaves the delays of the others alone.
            delay = rng.uniform(*delays)
            entries.append(
                _Recorded(
                    timestamp=stamp,
                    sequence=sequence,
                    visible_at=float(stamp) if row["timestamp"] < first_live else stamp + delay,
                    taker=True,
                    wallet=row["proxy_wallet"].lower(),
                    side=row["side"],
                    recorded={**row, "timestamp": stamp},
                ),
            )
        return entries


def _read(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    problems: list[str] = []
    shape: type[_V1 | _V2] | None = None
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = _parsed(line)
            shape = shape or (_V1 if "proxyWallet" in record else _V2)
            valid = shape.model_validate(record)
        except ValidationError as error:
            problems.append(f"{path}:{number}: {_first_fault(error)}")
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
        else:
            records.append(record if shape is _V1 else valid.model_dump())
        if len(problems) == _MOST_PROBLEMS:
            break
    if not records and not problems:
        problems.append(f"{path}:1: holds no rows")
    if problems:
        raise ConfigError(problems)
    return records


def _lines(path: Path) -> list[bytes]:
    if path.exists() and not path.is_file():
        raise ConfigError([f"{path}: not a file"])
    try:
        return path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError:
        raise ValueError("not JSON: nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the data, reported with the others
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is not a number")


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
