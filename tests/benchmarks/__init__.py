"""Measurements of what this project is for, side by side with its peers. Not collected by pytest."""
