"""Recorded rows where they lie beside the checkout, and made-up ones of the same traits where not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[3] / "shared" / "data"


def recorded(name: str) -> Path | None:
    """A recorded file, or None where the folder is absent: a test then checks less, or makes up its own."""
    path = RECORDED / name
    return path if path.exists() else None


def trades(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of `/v2/trades`, oldest first: bursts and lulls, fills of one transaction, equal rows that are two."""
    path = recorded("midterms_2022_part1.v2.jsonl")
    if path is not None:
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
        return _with_twins(rows, random.Random(seed))
    return _with_twins(list(_made_up(count, random.Random(seed))), random.Random(seed))


def write_tape(path: Path, rows: list[dict[str, Any]]) -> float:
    """Write rows as a tape. Returns the seconds that it spans."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return float(rows[-1]["timestamp"] - rows[0]["timestamp"])


def _with_twins(rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Two byte-identical rows can be two fills: make some so."""
    out = []
    for row in rows:
        out.append(row)
        if rng.random() < 0.03:
            out.append(dict(row))
    return out


def _made_up(count: int, rng: random.Random) -> Any:
    time = 1_642_000_000
    for _ in range(count):
        time += 0 if rng.random() < 0.4 else int(rng.expovariate(1 / 900))
        yield {
            "proxy_wallet": f"0x{rng.randrange(40):040x}",
            "side": rng.choice(["BUY", "SELL"]),
            "token_id": str(rng.getrandbits(250)),
            "condition_id": f"0x{rng.randrange(12):064x}",
            "size": round(rng.uniform(1, 500), 2),
            "price": round(rng.uniform(0.01, 0.99), 4),
            "timestamp": time,
            "title": "a market",
            "slug": "a-market",
            "icon": "",
            "event_slug": "an-event",
            "outcome": "Yes",
            "outcome_index": 0,
            "name": "trader",
            "pseudonym": "",
            "bio": "",
            "profile_image": "",
            "profile_image_optimized": "",
            "transaction_hash": f"0x{rng.getrandbits(256):064x}",
        }
