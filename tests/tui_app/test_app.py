"""Every key and every state word, on a screen of 80x24 unless said otherwise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Button, Input

from engine.snapshot import Outcome, Pull, SinkView, Snapshot
from tests.tui_app import builders as b
from tests.tui_app.bench import Bench, bench
from tui_app.app import MonitorApp
from tui_app.format import cells
from tui_app.keys import KEYS
from tui_app.panes.evict import EvictScreen
from tui_app.panes.header import Standing, header_line
from tui_app.panes.lines import Lines
from tui_app.view import View, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def run(
    act: Callable[[Bench], Awaitable[None]],
    snapshot: Snapshot | None = None,
    size: tuple[int, int] = (80, 24),
    **opts: Any,
) -> None:
    async def main() -> None:
        async with bench(snapshot, size, **opts) as on:
            await act(on)

    asyncio.run(main())


class TestHeader:
    """The first columns say the engine's state, the last ones the view's, at every width."""

    @pytest.mark.parametrize("width", [60, 80, 120, 200])
    @pytest.mark.parametrize(
        ("snapshot", "words"),
        [
            (b.snapshot(), "● RUNNING 4d02h"),
            (b.paused(), "‖ PAUSED by ana 2m14s"),
            (b.paused(paused_by=None), "‖ PAUSED 2m14s"),
            (b.snapshot(state="pausing", in_flight=3), "‖ PAUSING  3 in flight"),
            (b.backing_off(), "▲ DEGRADED  1 of 12 failing"),
            (b.snapshot(state="dead", reason="StoreError: disk full"), "✖ ENGINE DEAD  StoreError: disk full"),
            (b.snapshot(state="dead", reason="x" * 500), "✖ ENGINE DEAD  xxxx"),
            (b.snapshot(state="starting"), "… STARTING"),
            (b.snapshot(state="stopping", in_flight=2), "■ STOPPING  2 in flight"),
            (b.snapshot(state="stopped"), "■ STOPPED"),
        ],
    )
    def test_state_words(self, snapshot: Snapshot, words: str, width: int) -> None:
        head = "".join(text for text, _ in header_line(View(snapshot, 0.0, 3.0), Standing("prod1"), width))
        assert head.startswith(f" {words}")
        assert "LIVE" in head[-22:]
        assert len(head) == width

    def test_the_reason_is_cut_before_the_view_state_goes(self) -> None:
        async def act(on: Bench) -> None:
            assert on.head.endswith("LIVE")
            assert "prod1" not in on.head

        run(act, b.snapshot(state="dead", reason="x" * 500), (60, 16))

    def test_a_failing_sink_degrades(self) -> None:
        sink = SinkView(name="jsonl", owed=12, delivered=0, failures=3, reason="disk full")

        async def act(on: Bench) -> None:
            assert on.head.startswith(" ▲ DEGRADED  sink jsonl: 12 owed")
            assert "owed 12: disk full" in on.text()

        run(act, b.snapshot(sinks=(sink,)))

    def test_waiting_for_the_first_snapshot(self) -> None:
        async def act(on: Bench) -> None:
            assert on.head.startswith(" … STARTING")
            assert "waiting for the engine" in on.text()
            await on.press("p", "E", "r", "enter", "down", "s", "escape", "space", "space")
            assert on.engine.asked == []
            on.engine.error = ConnectionError("no such socket")
            await on.pull()
            assert on.head.startswith(" ✖ NO CONTACT  no such socket")
            on.engine.error = None
            await on.pull(b.snapshot())
            assert on.head.startswith(" ● RUNNING")

        run(act, engine=b.FakeEngine(snapshot=None))

    def test_a_lost_link_is_stale_and_comes_back(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.error = ConnectionError("connection refused")
            await on.pull(after=1.0)
            assert on.head.startswith(" ✖ NO CONTACT  connection refused  was running")
            await on.pull(after=47.0)
            assert "STALE 48s" in on.head
            assert on.text().count("48s old") == 7  # every title
            assert "7,312/10k" in on.text()  # the values stay
            on.engine.error = None
            await on.pull(b.snapshot(seq=2))
            assert "LIVE" in on.head
            assert "s old" not in on.text()

        run(act)

    def test_the_same_snapshot_again_grows_old(self) -> None:
        async def act(on: Bench) -> None:
            await on.pull(after=2.9)
            assert "LIVE" in on.head
            await on.pull(after=0.3)
            assert on.head.startswith(" ▲ ENGINE STUCK  no news for 3s  was running")
            assert "STALE 3s" in on.head

        run(act)

    def test_any_error_of_a_link_is_shown_not_raised(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.error = ValueError("[/] bad \x1b[31m json")
            await on.pull(after=1)
            assert "NO CONTACT  ValueError: [/] bad" in on.head
            assert "\x1b" not in on.text()

        run(act)


class TestTime:
    """A view counts by itself: the engine gives deadlines."""

    def test_countdowns_go_on_between_snapshots(self) -> None:
        async def act(on: Bench) -> None:
            assert "try 4   23s" in on.text()
            await on.pull(after=1.0)
            assert "try 4   22s" in on.text()
            assert "try 1    1s" in on.text()
            await on.pull(after=1.5)
            assert "probe" in on.text()

        run(act, b.backing_off())

    def test_a_restarted_engine_is_said_and_its_events_come_whole(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.events = (b.event(1, "started anew"),)
            await on.pull(b.snapshot(engine_id="e2"), after=1)
            assert on.app.monitor.after == 0
            await on.pull(after=1)
            assert "the engine was restarted" in on.text()
            assert "started anew" in on.text()

        run(act)

    def test_missed_events_are_counted(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.missed = 40
            await on.pull(after=1)
            assert "40 events are no longer kept by the engine" in on.text()

        run(act)

    def test_never_two_pulls_at_a_time(self) -> None:
        async def act(on: Bench) -> None:
            release = asyncio.Event()

            async def slow(after: int) -> Pull:
                on.engine.pulls += 1
                await release.wait()
                assert on.engine.snapshot is not None
                return Pull(snapshot=on.engine.snapshot, events=(), missed=0)

            on.engine.pull = slow  # type: ignore[method-assign]
            before = on.engine.pulls
            for _ in range(5):
                on.clock.at += 1
                on.app._beat()
                await on.pilot.pause()
            assert on.engine.pulls == before + 1
            assert "STALE 5s" in on.head  # the ages grew all the same
            release.set()
            await on.settle()
            on.app._beat()
            await on.settle()
            assert on.engine.pulls == before + 2

        run(act)


class TestVerbs:
    """Explicit verbs, chosen by what is shown, in the actor's name; what came of it is said."""

    def test_pause_and_resume(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.outcome = Outcome(ok=True, text="paused; 1 in flight ends")
            assert "p Pause engine" in on.foot
            await on.press("p")
            assert on.engine.asked == [("pause", "ana")]
            assert on.foot == " ✔ paused; 1 in flight ends"
            await on.pull(b.paused(seq=2), after=10)
            assert "p Resume engine" in on.foot
            await on.press("p")
            assert on.engine.asked[1:] == [("resume", "ana")]
            await on.pull(b.snapshot(state="pausing", seq=3), after=10)
            assert "p Resume engine" in on.foot

        run(act)

    def test_a_frozen_view_still_pauses_by_the_live_state(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("space")
            await on.pull(b.paused(seq=2), after=10)
            await on.press("p")
            assert on.engine.asked == [("resume", "ana")]

        run(act)

    def test_poll_now(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("r", "down", "r")
            assert on.engine.asked == [("poll", "binance", "ana"), ("poll", "bitfinex", "ana")]

        run(act)

    @pytest.mark.parametrize(
        ("error", "said"), [(ConnectionError("gone"), "no contact: gone"), (OSError("[/]"), "[/]")]
    )
    def test_a_verb_that_fails_is_said(self, error: Exception, said: str) -> None:
        async def act(on: Bench) -> None:
            async def fail(source: str, actor: str) -> Outcome:
                raise error

            on.engine.poll_now = fail  # type: ignore[method-assign]
            await on.press("r")
            assert on.foot.startswith(" ✖ ")
            assert said in on.foot

        run(act)

    def test_a_message_gives_the_keys_back(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("r")
            assert on.foot == " ✔ done"
            await on.pull(after=10)
            assert on.foot.startswith("q Quit")

        run(act)


class TestEvict:
    """Count, typed word, Cancel first, what was done."""

    def test_the_right_word_evicts_what_was_counted(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.outcome = Outcome(ok=True, text="forgot 7,312 identifiers", count=7_312)
            await on.press("E")
            assert isinstance(on.app.focused, Button)
            assert "Removes 7,312 identifiers" in on.text()
            await on.press(*"evict", "enter")
            assert on.engine.asked == [("preview", "all", "", "ana", None), ("evict", "all", "", "ana", 7_312)]
            assert "forgot 7,312 identifiers" in on.text()
            assert "[ Close ]" in on.text()
            await on.press("enter")
            assert not isinstance(on.app.screen, EvictScreen)
            assert on.foot == " ✔ forgot 7,312 identifiers"

        run(act)

    def test_enter_on_cancel_does_nothing(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("E", "enter")
            assert not isinstance(on.app.screen, EvictScreen)
            assert [what[0] for what in on.engine.asked] == ["preview"]

        run(act)

    def test_a_wrong_word_does_nothing(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("E", "tab")
            for word in ("", "evic", "EVICT", "evict all", "yes"):
                on.app.screen.query_one(Input).value = word
                await on.press("enter")
                assert [what[0] for what in on.engine.asked] == ["preview"]
                assert "type evict to confirm" in on.text()
            await on.press("escape")
            assert not isinstance(on.app.screen, EvictScreen)

        run(act)

    def test_one_source(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("down", "E", "down")
            assert "Scope   source bitfinex" in on.text()
            await on.press(*"evict", "enter")
            assert on.engine.asked[1:] == [
                ("preview", "source", "bitfinex", "ana", None),
                ("evict", "source", "bitfinex", "ana", 7_312),
            ]

        run(act)

    def test_a_refusal_counts_again_and_asks_again(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.outcome = Outcome(ok=False, text="refused: 9,000 now, 7,312 were shown")
            await on.press("E", *"evict", "enter")
            assert "refused: 9,000 now" in on.text()
            assert [what[0] for what in on.engine.asked] == ["preview", "evict", "preview"]
            assert on.app.screen.query_one(Input).value == ""

        run(act)

    def test_a_preview_that_is_refused_cannot_be_confirmed(self) -> None:
        async def act(on: Bench) -> None:
            on.engine.preview = Outcome(ok=False, text="view-only [/]")
            await on.press("E")
            assert "Refused view-only [/]" in on.text()
            await on.press(*"evict", "enter")
            assert [what[0] for what in on.engine.asked] == ["preview"]

        run(act)

    def test_it_goes_when_the_terminal_gets_too_small(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("E")
            await on.pilot.resize_terminal(50, 12)
            await on.settle()
            assert not isinstance(on.app.screen, EvictScreen)
            assert "need 60x16" in on.text()
            await on.press("E")
            assert not isinstance(on.app.screen, EvictScreen)

        run(act)


class TestView:
    """What is this view's own: nothing of it reaches the engine."""

    def test_freeze_holds_all_but_the_header(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("space")
            assert "space Go live" in on.foot
            before = on.text().splitlines()[1:]
            on.engine.events = (*b.EVENTS, b.event(4, "news"))
            await on.pull(b.backing_off(seq=2), after=38)
            assert "▲ DEGRADED" in on.head
            assert "FROZEN 38s" in on.head
            assert on.text().splitlines()[1:] == before
            await on.press("space")
            assert "LIVE" in on.head
            assert "news" in on.text()
            assert "failing" in on.text()
            assert on.engine.asked == []

        run(act)

    def test_one_pane_at_full_size_and_back(self) -> None:
        titles = {"1": "─Pacing", "2": "─Back-off", "3": "─Dedup", "4": "─Signals", "f1": "─Help"}

        async def act(on: Bench) -> None:
            before = on.text()
            for key, title in titles.items():
                await on.press(key)
                assert on.row(1).startswith(title)
                assert "Newest signals" not in on.text()
                await on.press("escape")
                assert on.text() == before
            await on.press("1", "1")
            assert on.text() == before

        run(act)

    def test_details_follow_the_source_not_its_row(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("down", "enter")
            assert on.row(1).startswith("─Source bitfinex")
            bad = tuple(s.model_copy(update={"state": "failing"} if s.name == "okx" else {}) for s in b.sources())
            await on.pull(b.snapshot(sources=bad, seq=2), after=1)
            assert on.row(1).startswith("─Source bitfinex")

        run(act)

    def test_escape_never_leaves(self) -> None:
        async def act(on: Bench) -> None:
            await on.press(*["escape"] * 5)
            assert on.app.is_running
            assert not on.app.monitor.leaving

        run(act)

    def test_filter(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("slash", *"kraq")
            assert on.app.monitor.wanted == "kraq"  # q is a letter here
            assert "Sources 0 of 12" in on.text()
            await on.press("backspace")
            assert "Sources 1 of 12" in on.text()
            assert "Newest signals 0 of 30" in on.text()
            await on.press("enter")
            assert on.foot.startswith("q Quit")
            assert "/kra" in on.text()
            await on.press("r")
            assert on.engine.asked == [("poll", "kraken", "ana")]
            await on.press("slash", "escape")
            assert on.app.monitor.wanted == ""
            assert "Sources 12 " in on.text()

        run(act)

    def test_sort(self) -> None:
        async def act(on: Bench) -> None:
            firsts = []
            for _ in range(5):
                source = on.app.monitor.chosen()
                assert source is not None
                firsts.append(source.name)
                await on.press("s")
            assert firsts == ["feed", "binance", "whales", "whales", "feed"]

        run(act, b.backing_off())

    def test_the_cursor_stays_on_its_source_and_on_the_screen(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("down", "pagedown", "pagedown")
            assert "▸● live     whales" in on.text()
            assert "↑8" in on.text()
            await on.press("pageup", "up")
            assert "▸● live     binance" in on.text()
            gone = tuple(each for each in b.sources() if each.name != "binance")
            await on.pull(b.snapshot(sources=gone, seq=2))
            assert "▸● live     bitfinex" in on.text()

        run(act)

    def test_refresh(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("plus")
            for expected in (0.25, 0.25):
                on.app.action_faster()
                assert on.app.monitor.interval == expected
            await on.press("minus")
            for _ in range(8):
                on.app.action_slower()
            assert on.app.monitor.interval == 10.0
            assert "refresh every 10 s" in on.foot
            await on.pull(after=29)
            assert "LIVE" in on.head  # patience grew with it

        run(act)

    def test_theme(self) -> None:
        async def act(on: Bench) -> None:
            seen = [on.app.theme]
            for _ in range(3):
                await on.press("T")
                seen.append(on.app.theme)
            assert seen == ["polltop-dark", "polltop-light", "ansi-16", "polltop-dark"]

        run(act)

    def test_the_palette_names_every_action(self) -> None:
        async def act(on: Bench) -> None:
            titles = {command.title.casefold() for command in on.app.get_system_commands(on.app.screen)}
            assert {key.help.casefold() for key in KEYS if key.action != "command_palette"} == titles
            await on.press("ctrl+p")
            await on.press(*"freeze")
            await on.press("enter")
            await on.press("enter")
            assert on.app.monitor.frozen

        run(act)

    def test_ids_are_unique_and_every_key_is_bound_once(self) -> None:
        ids = [key.id for key in KEYS]
        keys = [each for key in KEYS for each in key.key.split(",")]
        assert len(set(ids)) == len(ids)
        assert len(set(keys)) == len(keys)


class TestSize:
    """80x24 shows all; 60x16 is the least; below it a card."""

    def test_too_small_and_back(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("1")
            await on.pilot.resize_terminal(59, 24)
            await on.settle()
            assert "terminal 59x24;  need 60x16" in on.text()
            await on.press("p")
            assert on.engine.asked == [("pause", "ana")]
            await on.press("question_mark", "slash", "E", "enter")
            assert "need 60x16" in on.text()
            await on.pilot.resize_terminal(80, 24)
            await on.settle()
            assert on.row(1).startswith("─Pacing")
            await on.press("escape")
            assert "Newest signals" in on.text()

        run(act)

    def test_any_small_terminal_says_the_state(self) -> None:
        async def act(on: Bench) -> None:
            for size in ((59, 15), (20, 5), (10, 3), (1, 1)):
                await on.pilot.resize_terminal(*size)
                await on.settle()
                assert len(on.text().splitlines()) == size[1]
            await on.press("q")
            assert on.app.return_code == 0

        run(act, b.paused())

    def test_the_rows_do_not_depend_on_what_there_is_to_show(self) -> None:
        async def act(on: Bench) -> None:
            for size in ((60, 16), (61, 17), (79, 21), (80, 24), (100, 30), (120, 40), (250, 70)):
                await on.pilot.resize_terminal(*size)
                await on.settle()
                seen = set()
                for snapshot in (b.snapshot(), b.backing_off(), b.empty(), b.paused()):
                    await on.pull(snapshot)
                    lines = on.text().splitlines()
                    assert lines[-1].startswith("q Quit")
                    seen.add(tuple(number for number, line in enumerate(lines) if line.startswith("─")))
                assert len(seen) == 1

        run(act)

    def test_what_is_drawn_before_the_blocks_know_their_new_size_stays_in_its_place(self) -> None:
        async def act(on: Bench) -> None:
            drawn: list[tuple[int, set[int]]] = []

            def look(app: MonitorApp) -> None:
                frame = app.screen._compositor
                rows = {sum(cells(segment.text) for segment in strip) for strip in frame.render_strips()}
                drawn.append((frame.size.width, rows))

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(MonitorApp, "post_display_hook", look)
                for size in ((120, 40), (119, 40), (250, 70), (80, 24), (60, 16)):
                    await on.pilot.resize_terminal(*size)
                    await on.settle()
                await on.press("1", "1")
            assert {width for width, _ in drawn} >= {120, 119, 250, 80, 60}
            assert [(width, rows) for width, rows in drawn if rows != {width}] == []

        run(act, size=(119, 40))

    def test_every_row_of_the_screen_is_given_away(self) -> None:
        for height in range(16, 200):
            share = rows(height)
            assert 1 + 8 + share.sources + share.signals + share.events + 1 == height
            assert share.sources >= 4
            assert share.events >= 2


class TestLeaving:
    def test_q_leaves_at_once_without_an_engine_inside(self) -> None:
        async def act(on: Bench) -> None:
            assert on.foot.startswith("q Detach")
            await on.press("q")
            assert on.app.return_code == 0

        run(act, hosted=None)

    @pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
    def test_leaving_waits_for_the_engine(self, key: str) -> None:
        release = asyncio.Event()

        async def stop() -> int:
            await release.wait()
            return 1

        async def act(on: Bench) -> None:
            await on.pilot.press(key)
            await on.pilot.pause()
            assert on.head.startswith(" ■ STOPPING")
            assert on.app.return_code is None
            await on.pilot.press("q")  # said once is enough
            release.set()
            await on.settle()
            assert on.app.return_code == 1

        run(act, on_quit=stop)

    def test_a_second_interrupt_leaves_at_once(self) -> None:
        async def never() -> int:
            await asyncio.Event().wait()
            return 0

        async def act(on: Bench) -> None:
            await on.pilot.press("ctrl+c", "ctrl+c")
            await on.pilot.pause()
            assert on.app.return_code == 130

        run(act, on_quit=never)

    def test_ctrl_c_leaves_from_the_evict_question(self) -> None:
        async def act(on: Bench) -> None:
            await on.press("E")
            await on.press("ctrl+c")
            assert on.app.return_code == 0

        run(act)

    def test_the_engines_own_end_ends_the_view(self) -> None:
        async def act(on: Bench) -> None:
            for _ in range(50):
                await on.pilot.pause(0.01)
                if on.app.return_code is not None:
                    break
            assert on.app.return_code == 0

        run(act, b.snapshot(state="stopped"), hosted=lambda _: True)

    def test_an_engines_death_does_not(self) -> None:
        async def act(on: Bench) -> None:
            await on.settle()
            assert on.app.is_running
            assert not on.app.monitor.leaving
            assert on.head.startswith(" ✖ ENGINE DEAD  it is over")

        run(act, b.snapshot(state="dead", reason="it is over"), hosted=lambda _: True)


HOSTILE = (
    "[/]",
    "[bold]x[/bold]",
    "[@click=app.exit]x[/]",
    "[link=http://evil]x",
    "[50%] [BTC-USD] \\[x]",
    "漢字漢字漢字漢字漢字漢字漢字漢字",
    "e\u0301\u0301\u0301 ZALGO",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a\x1b[31mb\x07c\r\nd\x9be",
    "x" * 2_000,
    "",
    " ",
)


def hostile(text: str) -> Snapshot:
    """A state with this text in every place that outside text can reach, and all the others beside it."""
    return b.backing_off(
        version=text,
        config=text,
        state_dir=text,
        sources=tuple(b.source(each, type=text, reason=each, state="failing", attempt=3) for each in (text, *HOSTILE)),
        signals=tuple(b.signal(1, source=each, summary=each, id=each, late=True) for each in (text, *HOSTILE)),
        sinks=(SinkView(name=text, owed=3, delivered=1, failures=2, reason=text),),
        windows=(b.window(name=text), b.window(name=f"2{text}")),
        cooldowns=(b.cooldown(limit=text, cause=text),),
        limits=(b.limit(name=text), b.limit(name=f"2{text}")),
        last_cooldown=text,
        responses={text: 3},
        paused_by=text,
    )


@pytest.mark.parametrize("size", [(60, 16), (140, 45)])
def test_outside_text_acts_on_nothing_wherever_it_gets(size: tuple[int, int]) -> None:
    keys = ("1", "2", "3", "4", "enter", "r")

    async def act(on: Bench) -> None:
        def check() -> None:
            assert on.app.is_running
            assert not on.app.monitor.leaving
            assert not any(ord(char) < 32 and char != "\n" for char in on.text())

        for number, text in enumerate(HOSTILE):
            on.engine.outcome = on.engine.preview = Outcome(ok=True, text=text, count=5)
            on.engine.events = (*on.engine.events, b.event(number + 1, text, "error"))
            state = hostile(text)
            on.clock.at += 9
            on.engine.error = ConnectionError(text)
            await on.app.pull()
            on.engine.error = None
            for changed in ({"state": "paused", "paused_since": b.BOOT}, {"state": "dead", "reason": text}, {}):
                on.engine.snapshot = state.model_copy(update=changed)
                await on.app.pull()
                on.text()  # every line is rendered, if only for this
            await on.pull()
            check()
            if number < len(keys):
                await on.press(keys[number])
                check()
                await on.press("escape")
        await on.press("E", "down")
        check()
        await on.press(*"evict", "enter")
        check()
        await on.press("enter", "slash")
        on.app.query_one("#filter", Input).value = "[/] [bold"
        await on.press("enter")
        check()

    run(act, hostile("[/]"), size, engine=b.FakeEngine(events=()), host="[/]", actor="[/]")


def test_markup_is_shown_as_it_was_written() -> None:
    texts = ("[/]", "[bold]x[/bold]", "[@click=app.exit]x[/]", "[link=http://evil]x", "[50%] [BTC-USD] \\[x]")

    async def act(on: Bench) -> None:
        shown = on.text()
        for text in texts:
            assert f"ERR   {text}" in shown
            assert f"whales  {text}" in shown
            assert f"failing  {text[:9]}" in shown

    sources = tuple(b.source(text, state="failing") for text in texts)
    signals = tuple(b.signal(1, summary=text) for text in texts)
    events = tuple(b.event(number, text, "error") for number, text in enumerate(texts, 1))
    run(act, b.snapshot(sources=sources, signals=signals), (120, 40), engine=b.FakeEngine(events=events))


def test_only_the_cells_that_changed_are_repainted() -> None:
    async def act(on: Bench) -> None:
        painted: list[tuple[str | None, tuple[int, int, int, int]]] = []
        plain_refresh = Lines.refresh

        def refresh(self: Lines, *regions: Any, **more: Any) -> Any:
            painted.extend((self.id, tuple(region)) for region in regions)
            return plain_refresh(self, *regions, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Lines, "refresh", refresh)
            await on.pull(b.snapshot(seq=2))
            assert painted == []
            await on.pull(b.snapshot(seq=3, windows=(b.window(forced=7),)))
            assert painted == [("dedup", (28, 3, 1, 1))]

    run(act)
