# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a module changes on a host, step by step, by Python's own audit events.

Files opened for writing, renames, removals, modes, commands: what is watched knows nothing of it.
"""

from __future__ import annotations

import os
import stat
import sys

# Words of commands that read, and nothing else.
READING = {
    *("show", "is-enabled", "is-active", "list-units", "list-unit-files", "cat", "status"),
    *("-c", "--config-test", "check", "check-config", "--version", "-v"),
    *("dpkg-query", "rpm", "journalctl", "uname", "lsmod", "modinfo", "getconf", "apt-cache"),
}
PATHS = {"os.rename": 2, "os.link": 2, "os.symlink": 2, "os.remove": 1, "os.rmdir": 1}
PATHS |= {"os.mkdir": 1, "os.chmod": 1, "os.chown": 1, "os.truncate": 1}


def effect(event, arguments, scratch, within=""):
    """Return an audit event in words, None where it changes nothing that lasts, or not here."""
    if event == "subprocess.Popen":
        words = [os.fsdecode(word) for word in arguments[1]]
        names = {os.path.basename(words[0]), *words[1:3]}
        return None if names & READING else f"run {' '.join(words)}"[:200]
    if event == "open":
        path, _mode, flags = arguments
        if not isinstance(path, str) or not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
            return None
        away = path.startswith(scratch) or not path.startswith(within)
        return None if away else f"write {path}"
    if event not in PATHS:
        return None
    paths = [os.fsdecode(path) for path in arguments[: PATHS[event]] if not isinstance(path, int)]
    if event in ("os.remove", "os.rmdir") and arguments[1] >= 0:
        paths = [os.path.join(os.readlink(f"/proc/self/fd/{arguments[1]}"), paths[0])]
    if not paths or paths[-1].startswith(scratch) or not paths[-1].startswith(within):
        return None
    if _is_so(event, paths[0], arguments):
        return None
    return f"{event[3:]} {' '.join(paths)}"


def _is_so(event, path, arguments):
    """Return whether this changes nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return event in ("os.chmod", "os.chown")
    if event == "os.mkdir":
        return True
    if event == "os.chmod":
        return stat.S_IMODE(status.st_mode) == arguments[1]
    owner = (status.st_uid, status.st_gid)
    return event == "os.chown" and all(
        new in (-1, old)
        for new, old in zip(arguments[1:3], owner)  # noqa: B905 - Python 3.9
    )


class Watch:
    """Counts effects, and calls ``end`` before one of them.

    ``torn`` is a way in which that effect is left half done first: a file that it opens to write
    it anew is ``emptied``; a command is given to the function of this name in ``halves``. An
    ``end`` that returns is called again before each later effect.
    """

    def __init__(self, end=None, before=None, torn="", scratch=(), within="", halves=None):
        self.end, self.before, self.torn = end, before, torn
        self.scratch, self.within = scratch, within
        self.halves = halves or (lambda _argv: {})
        # Each in words, and the ways in which it may be torn.
        self.effects = []
        self.on = True

    def __call__(self, event, arguments):
        words = effect(event, arguments, self.scratch, self.within) if self.on else None
        if words is None:
            return
        ways = {}
        if event == "subprocess.Popen":
            argv = [os.fsdecode(word) for word in arguments[1]]
            ways = {name: (half, argv, arguments[3]) for name, half in self.halves(argv).items()}
        elif event == "open" and arguments[2] & os.O_TRUNC:
            path, mode, _flags = arguments
            ways = {} if path.startswith(("/proc/", "/sys/")) else {"emptied": (_empty, path, mode)}
        self.effects.append((words, list(ways)))
        if self.before is None or len(self.effects) < self.before:
            return
        if self.torn:
            half, *about = ways[self.torn]
            self.torn, self.on = "", False
            half(*about)
            self.on = True
        self.end()


def _empty(path, mode):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if mode is None else 0o644))


class Dead(BaseException):
    """What stands for SIGKILL in this process: nothing that follows it has an effect."""


def _die():
    raise Dead


_watch: Watch | None = None


def _hook(event, arguments):
    if _watch is not None:
        _watch(event, arguments)


def watched(run, before=None, torn="", within=""):
    """Run something in this process, dead before an effect; return its effects, and if it died.

    ``within`` is where files count: this process may have others.
    """
    global _watch
    if not getattr(sys, "_apiary_watched", False):
        sys.addaudithook(_hook)
        sys._apiary_watched = True
    _watch = Watch(_die, before, torn, within=within)
    try:
        run()
        return _watch.effects, False
    except Dead:
        return _watch.effects, True
    finally:
        _watch = None


def killed_anywhere(run, read, restore, within):
    """Kill ``run`` before each of its effects; the next run must end as if nothing had been.

    ``read`` returns the state of what it runs on, ``restore`` brings back one of these; ``run``
    returns the module's result. Returns how many kills there were.
    """
    begin = read()
    effects, _dead = watched(run, within=within)
    assert effects
    expected = read()
    assert not run()["changed"]
    kills = [(k, torn) for k, (_words, ways) in enumerate(effects, 1) for torn in ("", *ways)]
    for before, torn in kills:
        where = f"killed before {before}: {effects[before - 1][0]}{torn and f' ({torn})'}"
        restore(begin)
        _effects, dead = watched(run, before, torn, within)
        assert dead, where
        result = run()
        assert not result.get("failed"), (where, result)
        now = read()
        assert now == expected, (where, _differing(expected, now))
        assert not run()["changed"], where
    return len(kills)


def _differing(expected, now):
    names = sorted(set(expected) | set(now))
    return {
        name: (expected.get(name), now.get(name))
        for name in names
        if expected.get(name) != now.get(name)
    }
