"""One file a pane: a pure function from a `View` to lines, and at most a thin widget around it."""
