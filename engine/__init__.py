"""polltop's async engine: paced requests, windows of identifiers, a durable outbox. It knows no terminal."""

__all__ = ["__version__"]

__version__ = "0.1.0"
