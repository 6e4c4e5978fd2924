"""Which limits a request meets: by its URL, its method and its source, and what it costs under each."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from engine.config import Config, LimitConfig
from tests.engine.test_pacing import limit_config, pacer_of

ITEMS = "https://a.example/items"


def met(limits: list[LimitConfig], url: str, **of: Any) -> dict[str, int]:
    """Name and cost of what a request is charged to, without the gap of its host."""
    charges = pacer_of(limits)._matcher.charges(httpx.URL(url), of.get("method", "GET"), of.get("source", ""))
    return {limit.name: cost for limit, cost in charges.items if limit.kind != "gap"}


DEFAULT = {"https://a.example": 1}


@pytest.mark.parametrize(
    ("more", "of", "name"),
    [
        ({}, {}, ITEMS),
        ({"methods": ["POST"]}, {"method": "POST"}, f"POST {ITEMS}"),
        ({"methods": ["post", "PUT"]}, {"method": "put"}, f"POST,PUT {ITEMS}"),
        ({"methods": ["POST"]}, {}, None),
        ({"sources": ["whales"]}, {"source": "whales"}, f"{ITEMS} of whales"),
        ({"sources": ["whales"]}, {"source": "others"}, None),
        ({"sources": ["whales"]}, {}, None),
        ({"methods": ["GET"], "sources": ["a", "b"]}, {"source": "b"}, f"GET {ITEMS} of a,b"),
        ({"methods": ["GET"], "sources": ["a", "b"]}, {"source": "b", "method": "POST"}, None),
    ],
)
def test_a_limit_may_be_for_some_methods_and_sources_only(
    more: dict[str, Any], of: dict[str, str], name: str | None
) -> None:
    # What it is not for has the default rate: nothing is unlimited.
    assert met([limit_config(ITEMS, "9/1s", **more)], ITEMS, **of) == ({name: 1} if name else DEFAULT)


def test_the_first_pattern_that_matches_tells_the_cost() -> None:
    cost = {"https://a.example/book?depth=1000*": 50, "https://a.example/book*": 5}
    limits = [limit_config("https://a.example/*", "100/1s", cost=cost), limit_config(ITEMS, "9/1s")]
    assert met(limits, "https://a.example/book?depth=1000") == {"https://a.example/*": 50}
    assert met(limits, "https://a.example/book?depth=5") == {"https://a.example/*": 5}
    assert met(limits, ITEMS) == {"https://a.example/*": 1, ITEMS: 1}


def test_the_same_request_costs_one_look() -> None:
    pacer = pacer_of([limit_config("https://a.example/*", "9/1s")])
    first = pacer._matcher.charges(httpx.URL(ITEMS), "GET", "")
    assert pacer._matcher.charges(httpx.URL(ITEMS), "GET", "") is first
    # Other URLs under the same limits wait in the same queue.
    assert pacer._matcher.charges(httpx.URL("https://a.example/other"), "GET", "") is first
    for number in range(10_000):
        pacer._matcher.charges(httpx.URL(f"https://a.example/x?cursor={number}"), "GET", "")
    assert len(pacer._matcher._cache) <= 4096


def test_a_host_in_another_alphabet_is_matched_as_it_is_sent() -> None:
    assert met([limit_config("https://bücher.example/*", "9/1s")], "https://xn--bcher-kva.example/x") == {
        "https://bücher.example/*": 1
    }


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"methods": ["GE T"]}, "a method is a word"),
        ({"sources": ["nobody"]}, "limits name sources that do not exist: nobody"),
        ({"cost": {"https://a.example/dear": 10}}, "costs more than the whole rate, and could never be sent"),
        ({"cost": {"https://a.example/free": 0}}, "greater than or equal to 1"),
        ({"max_in_flight": 0}, "greater than or equal to 1"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(limit: dict[str, Any], said: str) -> None:
    source = {"name": "a", "type": "http_json", "url": ITEMS, "id": ["id"], "poll_interval_seconds": 5}
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"sources": [source], "limits": [{"match": ITEMS, "rate": "9/1s", **limit}]})
