"""Opaque, signed cursors: a place in the feed and a page size. Filters are not in them, as in the real API."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from engine.demo.market import Anchor
from engine.demo.params import BadRequestError

__all__ = ["CursorSigner"]


class CursorSigner:
    """Makes and opens the cursors of one server."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, last: Anchor, limit: int) -> str:
        """Make the cursor of what stands behind `last`."""
        params = {"l": limit, "ts": last.timestamp, "sq": str(last.sequence)}
        data = {"type": "trades", "params": params}
        signature = hmac.new(self._secret, json.dumps(data).encode(), sha256).hexdigest()
        return urlsafe_b64encode(json.dumps({"data": data, "sig": signature}).encode()).decode()

    def open(self, cursor: str) -> tuple[Anchor, int]:
        """Read the place and the page size. Raises BadRequestError for a cursor that `sign` did not make."""
        try:
            params = json.loads(urlsafe_b64decode(cursor.encode("ascii")))["data"]["params"]
            anchor, limit = Anchor(int(params["ts"]), int(params["sq"])), int(params["l"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise BadRequestError("invalid cursor", "cursor") from None
        # Made again and compared as a whole: nothing in it, the encoding included, can be changed.
        if not hmac.compare_digest(self.sign(anchor, limit), cursor):
            raise BadRequestError("invalid cursor", "cursor")
        return anchor, limit
