"""The themes that come with polltop: one YAML file each, read by `tui_app.themes`."""
