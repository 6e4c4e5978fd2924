"""`python -m tui_app`: the same as `polltop`."""

from tui_app.cli import main

main()
