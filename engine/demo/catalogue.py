"""The people and the questions of the synthetic market. Some of their texts mean harm to a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["HOSTILE_TITLES", "Contract", "Wallet", "make_contracts", "make_wallets"]

_TITLES = (
    "Bitcoin above $150,000 on December 31?",
    "Ethereum above $6,000 on December 31?",
    "Bitcoin Up or Down - Hourly",
    "Solana Up or Down - 15 minutes",
    "Fed decreases interest rates by 25 bps in December?",
    "No change in Fed interest rates after the next meeting?",
    "US recession in 2027?",
    "Largest company by market cap on January 1?",
    "Will Democrats win the Georgia Senate race?",
    "Will Republicans keep the House?",
    "Will the government shut down before New Year?",
    "Next Prime Minister of Canada",
    "Who will win the French presidential election?",
    "Ceasefire signed by March 31?",
    "Lakers vs. Celtics",
    "Chiefs vs. Bills",
    "Manchester City vs. Arsenal",
    "Real Madrid to win the Champions League?",
    "Sinner vs. Alcaraz - Australian Open",
    "Formula 1: world champion next season",
    "UFC 330: main card",
    "Highest temperature in New York City today?",
    "Hurricane makes landfall in Florida this season?",
    "Starship reaches orbit and returns in 2027?",
    "Best AI model at the end of the month?",
    "Most streamed artist of the year",
    "Best Picture at the Academy Awards",
    "Box office: opening weekend above $120m?",
    "Measles cases in the US above 3,000?",
    "OPEC cuts output at its next meeting?",
)

HOSTILE_TITLES = (
    "\x1b]52;c;cG9sbHRvcA==\x07Will the clipboard survive the year?",
    "\x1b[31mRed\x1b[0m wave in November?",
    "\x1b[2J\x1b[HWill the screen be cleared?",
    "\x1b]8;;https://example.com/\x1b\\Will a link be followed?\x1b]8;;\x1b\\",
    "\x9b31mWill an 8-bit control colour this?",
    "Will [/] close a tag?",
    "[@click=app.exit]x[/] Will anybody click?",
    "[bold]Will markup be shown as text?",
    "\u202eesrever ni eb siht lliW\u202c?",
    "Will the \u200fright-to-left\u200f mark stay put?",
    "\U0001f3f3\ufe0f\u200d\U0001f308\U0001f468\u200d\U0001f469\u200d\U0001f467 Will families win the \U0001f3c6?",
    "\u6771\u4eac\u306e\u6c17\u6e29\u306f\u672c\u65e535\u5ea6\u3092\u8d85\u3048\u308b\u304b\uff1f",
    "t\u0337\u0322\u031be\u0338\u035cx\u0336\u0321t\u0334 with many marks?",
    "Line one\nline two\r\tand a tab?",
    "$(touch polltop) `id`; ../../etc/passwd | will a shell see it?",
    "Will a title of four hundred characters fit? " + "long " * 71,
)

_FIRST = ("amber", "brisk", "calm", "dry", "early", "fair", "grand", "hasty", "idle", "jolly", "keen", "lucky")
_SECOND = ("badger", "comet", "dolphin", "ember", "falcon", "glacier", "harbor", "ibis", "jackal", "kestrel")


@dataclass(frozen=True, slots=True)
class Wallet:
    """Who trades."""

    address: str
    name: str
    pseudonym: str


@dataclass(frozen=True, slots=True)
class Contract:
    """What is traded: a question with two outcomes, each with a token."""

    condition_id: str
    title: str
    slug: str
    outcomes: tuple[str, str]
    tokens: tuple[str, str]
    mean_price: float
    swing: float
    period_seconds: float
    phase: float


def make_wallets(rng: random.Random, count: int) -> list[Wallet]:
    """Make wallets with a name or without one; a few names are hostile."""
    wallets = []
    for index in range(count):
        first, second = rng.choice(_FIRST), rng.choice(_SECOND)
        name = "" if rng.random() < 0.2 else f"{first}-{second}"  # noqa: PLR2004
        if index % 25 == 7:  # noqa: PLR2004
            name = rng.choice(HOSTILE_TITLES)[:24]
        wallets.append(Wallet(f"0x{rng.getrandbits(160):040x}", name, f"{first.title()}-{second.title()}"))
    return wallets


def make_contracts(rng: random.Random) -> list[Contract]:
    """Every question once, the first traded most: plain ones in a seeded order, then the hostile ones."""
    plain, hostile = rng.sample(_TITLES, len(_TITLES)), rng.sample(HOSTILE_TITLES, len(HOSTILE_TITLES))
    return [_contract(rng, title) for title in (*plain, *hostile)]


def _contract(rng: random.Random, title: str) -> Contract:
    return Contract(
        condition_id=f"0x{rng.getrandbits(256):064x}",
        title=title,
        slug=re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "untitled",
        outcomes=("Up", "Down") if "Up or Down" in title else ("Yes", "No"),
        tokens=(str(rng.getrandbits(256)), str(rng.getrandbits(256))),
        mean_price=rng.uniform(0.15, 0.85),
        swing=rng.uniform(0.02, 0.12),
        period_seconds=rng.uniform(120, 1800),
        phase=rng.uniform(0, 6.28),
    )
