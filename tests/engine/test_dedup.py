"""`BoundedDeduplicator` against a simple model, and the faults that others shipped.

Mutants of `engine/dedup.py` that were tried by hand and die here (most of them from public bugs):

- mark before claim: `claim` commits the key at once
- no claim: a second claim of a claimed key is NEW again
- no fence: `commit` marks keys that were revoked meanwhile, or commits a settled claim again
- `release` forgets to give keys back; `release` drops committed keys
- stale order list: `mark` again does not move the key to the end (zoolutions/pgbus#232)
- inclusive boundary: a key is still known at `at + window` (claim and sweep)
- restore trusts stamps in the future
- eviction takes a claimed key; force does not revoke a claim; force leaves a held key
- clear-all at capacity (HKUDS/nanobot#959); newest first at capacity
- no cap for fresh entries (NousResearch/hermes-agent#15913); held ones not counted
- a hold is not counted (the second holder's `let_go` is not needed); `let_go` keeps the old stamp
- a duplicate refreshes the stamp (vectordotdev/vector#22847)
- an unbounded sweep; no sweep at all
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine import dedup
from engine.dedup import BoundedDeduplicator, Claim, Verdict

W = 10.0
CAPACITY = 4


class HandClock:
    boot_id = "by hand"

    def __init__(self) -> None:
        self.now = 1000.0

    def mono(self) -> float:
        raise AssertionError("a window ages by boot time")

    def boot(self) -> float:
        return self.now

    def wall(self) -> float:
        raise AssertionError("a window ages by boot time")

    async def sleep_until(self, mono: float) -> None:
        raise AssertionError("a window waits for nothing")


def window(capacity: int = 1000) -> tuple[BoundedDeduplicator, HandClock]:
    clock = HandClock()
    return BoundedDeduplicator(W, capacity, clock), clock


def acted(found: BoundedDeduplicator, *keys: bytes) -> list[bytes]:
    """Claim and commit: which keys were new."""
    claim = found.claim(keys)
    assert found.commit(claim) == {key for key, v in zip(keys, claim.verdicts, strict=True) if v is Verdict.NEW}
    return [key for key, verdict in zip(keys, claim.verdicts, strict=True) if verdict is Verdict.NEW]


def test_a_key_is_known_in_a_half_open_window() -> None:
    found, clock = window()
    assert not found.seen(b"a")
    found.mark(b"a")
    assert found.seen(b"a")
    clock.now += W - 2**-20
    assert found.seen(b"a")
    assert found.claim([b"a"]).verdicts == [Verdict.DUPLICATE]
    clock.now = 1000.0 + W
    assert not found.seen(b"a")
    assert found.claim([b"a"]).verdicts == [Verdict.NEW]


def test_a_lone_key_is_admitted_once_a_window_and_a_duplicate_does_not_refresh() -> None:
    found, clock = window()
    times = []
    for second in range(41):
        clock.now = 1000.0 + second
        if acted(found, b"a"):
            times.append(second)
    assert times == [0, 10, 20, 30, 40]


def test_marking_again_refreshes_and_moves_to_the_end() -> None:
    found, clock = window(3)
    for key in (b"a", b"b", b"c"):
        found.mark(key)
        clock.now += 1
    found.mark(b"a")
    found.mark(b"d")
    assert [key for key in (b"a", b"b", b"c", b"d") if found.seen(key)] == [b"a", b"c", b"d"]
    clock.now += W - 1
    assert found.seen(b"a")
    assert not found.seen(b"c")


def test_an_expired_key_that_comes_back_is_not_the_oldest() -> None:
    """zoolutions/pgbus#232, permissionlesstech/bitchat#1638: a; expire; b, c, a, d with room for three."""
    found, clock = window(3)
    acted(found, b"a")
    clock.now += W
    for key in (b"b", b"c", b"a", b"d"):
        acted(found, key)
    assert [key for key in (b"a", b"b", b"c", b"d") if found.seen(key)] == [b"a", b"c", b"d"]


@pytest.mark.parametrize("size", [CAPACITY, CAPACITY - 1])
def test_a_page_as_large_as_the_window_is_new_once(size: int) -> None:
    """LionSR/TeXRA#8264: eviction inside a batch re-emitted items of the same page."""
    found, _ = window(CAPACITY)
    page = [bytes([number]) for number in range(size)]
    assert acted(found, *page) == page
    for _ in range(5):
        assert acted(found, *page) == []


def test_one_too_many_evicts_one() -> None:
    found, _ = window(CAPACITY)
    for number in range(CAPACITY):
        found.mark(bytes([number]))
    found.mark(b"more")
    assert found.occupancy().entries == CAPACITY
    assert found.occupancy().evicted_early == 1
    assert not found.seen(bytes([0]))
    assert found.seen(bytes([1]))


def test_ten_times_the_capacity_inside_a_window() -> None:
    found, _ = window(100)
    for number in range(1000):
        acted(found, number.to_bytes(4, "big"))
        assert len(found) <= 100
    assert found.occupancy().evicted_early == 900


def test_a_window_full_of_held_keys_takes_new_ones() -> None:
    found, _ = window(3)
    found.hold([b"a", b"b", b"c"])
    claim = found.claim([b"d"])
    assert found.commit(claim, hold=True) == {b"d"}
    assert found.seen(b"d")
    assert not found.seen(b"a")
    assert found.occupancy().evicted_early == 1
    assert found.occupancy().held == 3


def test_what_ages_goes_before_what_is_held() -> None:
    found, _ = window(3)
    found.hold([b"a", b"b"])
    found.mark(b"c")
    found.hold([b"d"])
    assert [key for key in (b"a", b"b", b"c", b"d") if found.seen(key)] == [b"a", b"b", b"d"]


def test_an_expired_key_pushed_out_is_not_early() -> None:
    found, clock = window(1)
    found.mark(b"a")
    clock.now += W
    found._ageing.move_to_end(b"a")
    assert acted(found, b"b") == [b"b"]
    assert (found.evicted_early, found.expired) == (0, 1)


# Claims.


def test_a_claim_is_in_flight_for_others_until_it_is_settled() -> None:
    found, _ = window()
    first = found.claim([b"a", b"b"])
    second = found.claim([b"b", b"c"])
    assert second.verdicts == [Verdict.IN_FLIGHT, Verdict.NEW]
    assert found.in_flight(b"b") is first
    assert not found.seen(b"b")
    found.release(first)
    assert first.settled.is_set()
    assert found.in_flight(b"b") is None
    assert found.claim([b"a", b"b"]).verdicts == [Verdict.NEW, Verdict.NEW]
    assert found.commit(second) == {b"c"}
    assert found.occupancy().claims == 2


def test_a_key_given_twice_is_new_once() -> None:
    found, _ = window()
    claim = found.claim([b"a", b"a"])
    assert claim.verdicts == [Verdict.NEW, Verdict.IN_FLIGHT]
    assert found.in_flight(b"a") is claim


def test_a_claim_that_fails_or_is_cancelled_loses_nothing() -> None:
    """apache/pulsar#5218, NServiceBus#5557 and others: marked before it was handled, and then never again."""
    found, _ = window()
    for _ in range(3):
        claim = found.claim([b"a"])
        assert claim.verdicts == [Verdict.NEW]
        found.release(claim)
    assert acted(found, b"a") == [b"a"]
    found.release(claim)
    assert found.seen(b"a")


def test_a_stale_claim_marks_nothing() -> None:
    found, _ = window()
    stale = found.claim([b"a", b"b"])
    assert found.evict([b"a"]) == 1
    fresh = found.claim([b"a"])
    assert fresh.verdicts == [Verdict.NEW]
    assert found.commit(stale) == {b"b"}
    assert not found.seen(b"a")
    assert found.in_flight(b"a") is fresh
    assert found.commit(stale) == set()
    found.release(stale)
    assert found.in_flight(b"a") is fresh
    assert found.commit(fresh) == {b"a"}
    assert found.commit(fresh) == set()
    assert found.new == 2


def test_claims_are_never_evicted_and_need_no_room() -> None:
    found, _ = window(2)
    claim = found.claim([b"a"])
    for number in range(100):
        found.mark(bytes([number]))
    assert found.in_flight(b"a") is claim
    assert found.claim([b"a"]).verdicts == [Verdict.IN_FLIGHT]
    assert found.commit(claim) == {b"a"}
    assert found.seen(b"a")


def test_a_window_counts_from_the_commit() -> None:
    found, clock = window()
    claim = found.claim([b"a"])
    clock.now += 100
    found.commit(claim)
    clock.now += W - 1
    assert found.seen(b"a")


# Holds.


def test_what_is_held_does_not_age_until_the_last_holder_lets_go() -> None:
    found, clock = window()
    acted(found, b"a")
    found.hold([b"a"])
    found.hold([b"a"])
    clock.now += 1000
    found.let_go([b"a"])
    clock.now += 1000
    assert found.claim([b"a"]).verdicts == [Verdict.DUPLICATE]
    found.let_go([b"a"])
    clock.now += W - 1
    assert found.seen(b"a")
    clock.now += 1
    assert not found.seen(b"a")
    found.let_go([b"a", b"never"])
    assert not found.seen(b"a")


def test_marking_what_is_held_does_not_make_it_age() -> None:
    found, clock = window()
    found.hold([b"a"])
    found.mark(b"a")
    clock.now += 1000
    assert found.seen(b"a")
    assert len(found) == 1


def test_force_forgets_what_is_held_by_many() -> None:
    found, clock = window()
    found.hold([b"a"])
    found.hold([b"a"])
    assert found.evict([b"a", b"a", b"never"]) == 1
    assert not found.seen(b"a")
    assert found.forced == 1
    clock.now += 1
    assert acted(found, b"a") == [b"a"]


# Restore.


def test_restore_keeps_ages_and_trusts_no_stamp_from_the_future() -> None:
    found, clock = window()
    found.restore([(b"old", 985.0), (b"a", 992.0), (b"future", 5000.0)])
    assert not found.seen(b"old")
    clock.now += 2.0
    assert not found.seen(b"a")
    assert found.seen(b"future")
    clock.now = 1000.0 + W
    assert not found.seen(b"future")


def test_restore_of_more_than_fits_keeps_the_newest() -> None:
    found, _ = window(2)
    found.restore([(bytes([number]), 995.0 + number) for number in range(5)])
    assert [number for number in range(5) if found.seen(bytes([number]))] == [3, 4]


# Bounds of the work, counted and not timed.


def test_a_million_keys_that_expire_at_once_stall_no_operation() -> None:
    found, clock = window(2_000_000)
    found.restore((number.to_bytes(4, "big"), clock.now) for number in range(1_000_000))
    clock.now += W
    operations: list[tuple[int, Callable[[], Any]]] = [
        (1, lambda: found.seen(b"x")),
        (1, lambda: found.mark(b"x")),
        (3, lambda: found.claim([b"1", b"2", b"3"])),
        (1, lambda: found.hold([b"y"])),
        (1, lambda: found.let_go([b"y"])),
        (dedup._SWEEP_MOST, found.occupancy),
        (1, lambda: found.evict([b"x"])),
        (1, lambda: found.commit(found.claim([b"z"]))),
    ]
    for keys, operation in operations:
        before = len(found)
        operation()
        assert before - len(found) <= dedup._SWEEP * keys + 1
    # What was not swept yet is not known all the same.
    assert not found.seen((999_999).to_bytes(4, "big"))
    assert 8 <= 1_000_000 - len(found) <= 200 + dedup._SWEEP * dedup._SWEEP_MOST
    # And it goes, in the course of ordinary work.
    for _ in range(1_000_000 // dedup._SWEEP + 1):
        found.seen(b"x")
    assert len(found) == 2
    assert found.expired == 1_000_000


# The model.

KEYS = [bytes([number]) for number in range(7)]


class Model:
    """The same in a few plain lines: a list of (key, at) in order of ageing, a dict of holds, a dict of claims."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.ageing: list[tuple[bytes, float]] = []
        self.held: list[tuple[bytes, int]] = []
        self.claims: dict[bytes, int] = {}

    def expire(self) -> None:
        self.ageing = [(key, at) for key, at in self.ageing if self.now < at + W]

    def known(self, key: bytes) -> bool:
        self.expire()
        return key in dict(self.ageing) or key in dict(self.held)

    def age(self, key: bytes, at: float) -> None:
        if key not in dict(self.held):
            self.ageing = [pair for pair in self.ageing if pair[0] != key] + [(key, at)]

    def hold(self, key: bytes) -> None:
        self.ageing = [pair for pair in self.ageing if pair[0] != key]
        if key in dict(self.held):
            self.held = [(k, n + (k == key)) for k, n in self.held]
        else:
            self.held.append((key, 1))

    def let_go(self, key: bytes) -> None:
        count = dict(self.held).get(key, 0)
        if count == 1:
            self.held = [pair for pair in self.held if pair[0] != key]
            self.ageing.append((key, self.now))
        elif count:
            self.held = [(k, n - (k == key)) for k, n in self.held]

    def bound(self) -> None:
        self.expire()
        while len(self.ageing) + len(self.held) > CAPACITY:
            del (self.ageing or self.held)[0]

    def forget(self, key: bytes) -> None:
        self.ageing = [pair for pair in self.ageing if pair[0] != key]
        self.held = [pair for pair in self.held if pair[0] != key]
        self.claims.pop(key, None)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.real = BoundedDeduplicator(W, CAPACITY, self.clock)
        self.model = Model()
        self.open: list[tuple[int, Claim]] = []
        self.stale: list[Claim] = []
        self.serial = 0

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0, 5.0, W, 2 * W]))
    def advance(self, seconds: float) -> None:
        self.clock.now += seconds
        self.model.now += seconds

    @rule(key=st.sampled_from(KEYS))
    def mark(self, key: bytes) -> None:
        self.real.mark(key)
        self.model.expire()
        self.model.age(key, self.model.now)
        self.model.bound()

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=6))
    def claim(self, keys: list[bytes]) -> None:
        expected = []
        self.serial += 1
        for key in keys:
            if self.model.known(key):
                expected.append(Verdict.DUPLICATE)
            elif key in self.model.claims:
                expected.append(Verdict.IN_FLIGHT)
            else:
                expected.append(Verdict.NEW)
                self.model.claims[key] = self.serial
        claim = self.real.claim(keys)
        assert claim.verdicts == expected
        self.open.append((self.serial, claim))

    def _settle(self, data: st.DataObject) -> tuple[list[bytes], Claim] | None:
        if not self.open:
            return None
        serial, claim = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.stale.append(claim)
        keys = [key for key, holder in self.model.claims.items() if holder == serial]
        for key in keys:
            del self.model.claims[key]
        return keys, claim

    @rule(data=st.data(), hold=st.booleans())
    def commit(self, data: st.DataObject, hold: bool) -> None:
        if (found := self._settle(data)) is None:
            return
        keys, claim = found
        order = self.real.commit(claim, hold=hold)
        assert order == set(keys)
        self.model.expire()
        for key in order:
            self.model.age(key, self.model.now)
        for key in order if hold else ():
            self.model.hold(key)
        self._bound_like(set(keys))

    def _bound_like(self, equals: set[bytes]) -> None:
        """Keys of one commit are equally old: which of them goes first is not promised, how many is."""
        before = {key for key, _ in [*self.model.ageing, *self.model.held]}
        self.model.bound()
        kept = {key for key, _ in [*self.model.ageing, *self.model.held]}
        real = {key for key in KEYS if self.real.seen(key)}
        assert before - equals - kept == before - equals - real
        assert len(kept) == len(real)
        self.model.ageing = [pair for pair in self.model.ageing if pair[0] in real]
        self.model.held = [pair for pair in self.model.held if pair[0] in real]
        for key in real - kept:
            self.model.age(key, self.model.now) if key in self.real._ageing else self.model.held.append((key, 1))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if (found := self._settle(data)) is not None:
            self.real.release(found[1])

    @rule(data=st.data(), commit=st.booleans())
    def settle_again(self, data: st.DataObject, commit: bool) -> None:
        if self.stale:
            claim = data.draw(st.sampled_from(self.stale))
            if commit:
                assert self.real.commit(claim) == set()
            else:
                self.real.release(claim)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=CAPACITY, unique=True), hold=st.booleans())
    def fire(self, keys: list[bytes], hold: bool) -> None:
        """Several keys at once, as a read does: without this compound rule the cap is hardly ever met."""
        for key in keys:
            claim = self.real.claim([key])
            new = not self.model.known(key) and key not in self.model.claims
            assert (claim.verdicts == [Verdict.NEW]) == new
            self.real.commit(claim, hold=hold)
            if new:
                self.model.hold(key) if hold else self.model.age(key, self.model.now)
            self.model.bound()

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    def hold(self, keys: list[bytes]) -> None:
        self.real.hold(keys)
        self.model.expire()
        for key in keys:
            self.model.hold(key)
        self.model.bound()

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=3))
    def let_go(self, keys: list[bytes]) -> None:
        self.real.let_go(keys)
        for key in keys:
            self.model.let_go(key)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=3, unique=True))
    def force(self, keys: list[bytes]) -> None:
        for key in keys:
            self.model.forget(key)
        self.real.evict(keys)

    @rule(ahead=st.sampled_from([0.0, 0.0, 3600.0]))
    def restart(self, ahead: float) -> None:
        """Dump and load; the clock may have been set back by `ahead` meanwhile. Claims vanish."""
        self.model.expire()
        dump = [(key, at + ahead) for key, at in self.model.ageing]
        self.real = BoundedDeduplicator(W, CAPACITY, self.clock)
        self.real.restore(dump)
        for key, count in self.model.held:
            for _ in range(count):
                self.real.hold([key])
        self.model.ageing = [(key, min(at, self.model.now)) for key, at in dump]
        self.model.claims, self.open, self.stale = {}, [], []

    @invariant()
    def agrees(self) -> None:
        assert [key for key in KEYS if self.real.seen(key)] == [key for key in KEYS if self.model.known(key)]
        assert {key for key in KEYS if self.real.in_flight(key)} == self.model.claims.keys()
        view = self.real.occupancy()
        assert view.held == len(self.model.held)
        assert view.claims == len(self.model.claims)
        assert view.entries <= CAPACITY

    @invariant()
    def a_claim_holds_its_keys_alone(self) -> None:
        for key in KEYS:
            holders = [claim for _, claim in self.open if key in claim.keys]
            assert len(holders) <= 1
            assert (self.real.in_flight(key) is not None) == bool(holders)


TestAgainstTheModel = Machine.TestCase
TestAgainstTheModel.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
