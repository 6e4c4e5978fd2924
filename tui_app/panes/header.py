"""The first row: the engine's state in words at the left, this view's at the right, and what fits between."""

from __future__ import annotations

from dataclasses import dataclass

from engine.snapshot import Snapshot
from tui_app.format import Line, Role, cells, cut, duration, harmless, rate, words
from tui_app.view import View

__all__ = ["Standing", "engine_words", "header_line", "sending"]


@dataclass(frozen=True, slots=True)
class Standing:
    """What this view is doing, beside the engine's state."""

    host: str = ""
    frozen: float | None = None
    """Seconds since the view was frozen."""
    leaving: bool = False
    contact: str = ""
    """Why there is no contact, before the first snapshot."""


def sending(snapshot: Snapshot) -> float:
    """Requests a second over the last ten whole seconds."""
    recent = snapshot.requests_per_second[-11:-1]
    return sum(recent) / len(recent) if recent else 0.0


def _degraded(view: View) -> list[str]:
    """What is wrong with a running engine, worst first; empty when all is well."""
    sources = view.snapshot.sources
    failing = sum(source.state == "failing" for source in sources)
    backing = sum(source.state == "throttled" for source in sources)
    cooldowns = view.snapshot.cooldowns
    found = []
    if failing:
        found.append(f"{failing} of {len(sources)} failing")
    if backing:
        found.append(f"{backing} of {len(sources)} backing off")
    elif cooldowns:
        found.append(f"{len(cooldowns)} limits backing off")
    found += [f"sink {sink.name}: {sink.owed} owed" for sink in view.snapshot.sinks if sink.reason and sink.owed]
    waits = [cooldown.until for cooldown in cooldowns if not cooldown.probing]
    if waits:
        found.append(f"next {duration(view.until_boot(min(waits)))}")
    return found


def engine_words(view: View) -> tuple[str, Role, list[str]]:
    """The state with its glyph, the role it is shown in, and the words behind it, the dispensable ones last."""
    snap = view.snapshot
    state = snap.state
    if state == "dead":
        return "✖ ENGINE DEAD", "bad", [snap.reason]
    if view.contact:
        return "✖ NO CONTACT", "bad", [view.contact, f"was {state}"]
    if view.stale and state not in {"stopped", "stopping"}:
        return "▲ ENGINE STUCK", "bad", [f"no news for {duration(view.age)}", f"was {state}"]
    if state == "paused":
        who = f" by {snap.paused_by}" if snap.paused_by else ""
        return f"‖ PAUSED{cut(who, 20)} {duration(view.since(snap.paused_since))}", "warn", ["p resumes"]
    if state == "pausing":
        return "‖ PAUSING", "warn", [f"{snap.in_flight} in flight", "p resumes"]
    if state != "running":
        glyph = "…" if state == "starting" else "■"
        return f"{glyph} {state.upper()}", "dim", [f"{snap.in_flight} in flight" if state == "stopping" else ""]
    if problems := _degraded(view):
        return "▲ DEGRADED", "warn", problems
    return f"● RUNNING {duration(view.since(snap.started))}", "ok", _stats(snap)


def _stats(snap: Snapshot) -> list[str]:
    hour = sum(snap.signals_per_minute)
    return [f"{len(snap.sources)} src{' ok' if snap.sources else ''}", f"{rate(sending(snap))} req/s", f"{hour} sig/h"]


def header_line(view: View | None, standing: Standing, width: int) -> Line:
    """The header, exactly `width` cells: the two state words stay whatever else has to go."""
    role: Role
    right_role: Role
    if view is None:
        state, role, rest = "… STARTING", "dim", [""]
        if standing.contact:
            state, role, rest = "✖ NO CONTACT", "bad", [standing.contact]
        right, right_role = "WAITING", "dim"
    else:
        state, role, rest = engine_words(view)
        right, right_role = _view_words(view, standing)
    if standing.leaving:
        state, role, rest = "■ STOPPING", "warn", ["leaving", "Ctrl-C: at once"]
    left = f" {harmless(state)}"
    version = f"{standing.host} {view.snapshot.version}" if view else standing.host
    tail = f" {right} "
    spare = width - cells(left) - cells(tail)
    # From the right: version, then host, then the words behind the state go first.
    said = words(map(harmless, rest), spare - 3)
    middle = f"  {said}" if said else ""
    spare -= cells(middle)
    for name in (version.strip(), standing.host):
        if name and cells(name) + 3 < spare:
            tail = f" {right} | {harmless(name)} "
            break
    gap = max(0, width - cells(left) - cells(middle) - cells(tail))
    return (
        (left, role),
        (middle, ""),
        (" " * gap, ""),
        (tail[: len(right) + 1], right_role),
        (tail[len(right) + 1 :], "dim"),
    )


def _view_words(view: View, standing: Standing) -> tuple[str, Role]:
    if view.stale:
        return f"STALE {duration(view.age)}", "bad"
    if standing.frozen is not None:
        return f"FROZEN {duration(standing.frozen)}", "info"
    return "LIVE", "ok"
