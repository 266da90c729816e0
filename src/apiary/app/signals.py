# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens on Ctrl-C and SIGTERM while something runs that must end in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_signals(handle: Callable[[], None], *kinds: signal.Signals) -> Iterator[None]:
    """Call ``handle`` on these signals while the body runs; only a main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {kind: signal.signal(kind, lambda _number, _frame: handle()) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
