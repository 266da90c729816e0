# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a simulated host: run a module and kill it before an effect; bring the host back; read it.

Effects are Python's own audit events: files opened for writing, renames, removals, modes, commands.
Reads a request of JSON from standard input; the module knows nothing of this.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import hashlib
import json
import os
import pickle
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import traceback

from effects import Watch  # beside this program
from halves import halves

HERE = os.path.dirname(os.path.abspath(__file__))
MODULES = "ansible_collections.apiary.instinct.plugins.modules"
BASE, EFFECTS = os.path.join(HERE, "base.pickle"), os.path.join(HERE, "effects.json")
OUTPUT = os.path.join(HERE, "output")
TREES = (
    *("/etc", "/usr/libexec/apiary", "/usr/local", "/boot", "/var/lib/apiary", "/run/apiary"),
    *("/run/systemd/system", "/var/lib/kubelet", "/var/lib/prometheus", "/var/lib/grafana"),
    *("/export", "/srv/store", "/run/effects", "/var/lib/node_exporter"),
)
# Of the machine below, of another's making, or with the time in it.
IGNORED = (
    *("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab", "/etc/ld.so.cache"),
    *("/etc/*-", "/etc/.pwd.lock", "/etc/.updated", "/var/lib/prometheus/*/*"),
    *("/var/lib/prometheus/node-exporter/*.prom", "/run/apiary/*.sock", "/run/apiary/*/starts"),
    "/run/apiary/due/*",  # of an engine run that has ended since, which counts no more
)
UNITS = ("/etc/systemd/system", "/run/systemd/system")
SUFFIXES = (".service", ".timer", ".mount", ".target", ".socket", ".path")
SCRATCH = ("/tmp/", "/var/tmp/", "/root/.ansible", "/dev/", HERE)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def run(request):
    """Be a module of ours as Ansible starts it, until it is killed."""
    from ansible.module_utils import basic

    internal = {"check_mode": False, "diff": True, **request.get("internal", {})}
    internal |= {"remote_tmp": "/tmp", "keep_remote_files": False, "module_name": "converge"}
    arguments = request["args"] | {f"_ansible_{name}": value for name, value in internal.items()}
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    module = sys.modules[f"{MODULES}.{request['module']}"]
    watch = Watch(die, request.get("before"), request.get("torn", ""), SCRATCH, halves=halves)
    sys.addaudithook(watch)
    try:
        module.main()
    finally:
        watch.on = False
        with open(EFFECTS, "w", encoding="utf-8") as stream:
            json.dump(watch.effects, stream)


def systemctl(*words):
    done = subprocess.run(("systemctl", *words), capture_output=True, text=True, check=False)
    return done.stdout


def ours(unit):
    """Return whether a unit is of interest: not the machine's, nor of who logs in."""
    return unit.endswith(SUFFIXES) and not unit.startswith(
        ("systemd-", "user", "session", "init.", "apt-", "proc-", "run-", "dev-", "sys-", "dpkg-")
    )


def active():
    """Return the units that are up."""
    words = ("list-units", "--plain", "--no-legend", "--state=active,activating,reloading")
    return {
        unit for unit in (line.split()[0] for line in systemctl(*words).splitlines()) if ours(unit)
    }


def paths_of(trees):
    """Yield every path of the trees, which may be patterns."""
    for tree in (path for pattern in (*TREES, *trees) for path in glob.glob(pattern)):
        yield tree
        # A link is itself, and not where it leads.
        for folder, directories, names in [] if os.path.islink(tree) else os.walk(tree):
            yield from (os.path.join(folder, name) for name in (*directories, *names))


def read_tree(trees):
    """Return every entry of the trees: its kind, mode, owner, and what it holds."""
    found = {}
    ignored = re.compile("|".join(fnmatch.translate(pattern) for pattern in IGNORED))
    for path in paths_of(trees):
        if ignored.match(path):
            continue
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            continue
        holds = None
        if stat.S_ISLNK(status.st_mode):
            holds = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as stream:
                holds = stream.read()
        elif not stat.S_ISDIR(status.st_mode):
            continue
        found[path] = (status.st_mode, status.st_uid, status.st_gid, holds)
    return found


def put(path, entry):
    mode, user, group, holds = entry
    if stat.S_ISDIR(mode):
        os.makedirs(path, exist_ok=True)
    elif stat.S_ISLNK(mode):
        os.symlink(holds, path)
    else:
        with open(path, "wb") as stream:
            stream.write(holds)
    if not stat.S_ISLNK(mode):
        os.chmod(path, stat.S_IMODE(mode))
    os.chown(path, user, group, follow_symlinks=False)


def read_value(path):
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read().strip()
    except OSError:
        return None
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen.group(1) if chosen else text


def read_values(request):
    paths = [path for pattern in request["values"] for path in sorted(glob.glob(pattern))]
    return {path: read_value(path) for path in paths}


def snapshot(request):
    """Remember the host as it is."""
    values = read_values(request)
    trees = request["trees"]
    with open(BASE, "wb") as stream:
        pickle.dump((trees, read_tree(trees), active(), values, time.time()), stream)
    return {}


def restore(_request):
    """Bring the host back to what it was."""
    with open(BASE, "rb") as stream:
        trees, tree, units, values, since = pickle.load(stream)  # noqa: S301 - written above
    shutil.rmtree("/run/effects", ignore_errors=True)
    new = sorted(active() - units)
    if new:
        systemctl("stop", "--", *new)
    now = read_tree(trees)
    for path in sorted(set(now) - set(tree), reverse=True):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)
    for path, entry in sorted(tree.items()):
        if now.get(path) == entry:
            continue
        if path in now and not stat.S_ISDIR(entry[0]):
            os.unlink(path)
        put(path, entry)
    for path, value in values.items():
        if value is not None and read_value(path) != value:
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(value)
    for path in glob.glob("/tmp/apiary-*"):
        shutil.rmtree(path, ignore_errors=True)
    # It knows its sources by size and second.
    for path in glob.glob("/var/cache/apt/*.bin"):
        os.unlink(path)
    systemctl("daemon-reload")
    systemctl("reset-failed")
    services = [unit for unit in units if unit.endswith(".service")]
    times = properties(services, "StateChangeTimestamp")
    changed = [name for name, row in times.items() if _seconds(row["StateChangeTimestamp"]) > since]
    if changed:
        systemctl("restart", "--", *changed)
    gone = sorted(units - active())
    if gone:
        systemctl("start", "--", *gone)
    with open(BASE, "wb") as stream:
        pickle.dump((trees, tree, units, values, time.time()), stream)
    away = sorted(active() ^ units)
    # A timer starts what is static, whenever it likes.
    rows = properties(away, "UnitFileState")
    return {"not_back": [name for name in away if rows[name].get("UnitFileState") != "static"]}


def properties(units, *names):
    """Return properties of units, each by its name."""
    words = ("show", "--timestamp=us+utc", f"--property={','.join(('Id', *names))}", "--")
    blocks = systemctl(*words, *units).split("\n\n") if units else []
    rows = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks
    ]
    return {row.pop("Id"): row for row in rows if "Id" in row}


def _seconds(text):
    import datetime

    match = re.search(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d+)", text)
    if not match:
        return 0.0
    at = datetime.datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S")
    return at.replace(tzinfo=datetime.UTC).timestamp() + float(f"0.{match[2]}")


def state(request):
    """Return what the host is, by name: files, values, units, and who runs what is no longer so."""
    found = {}
    for path, (mode, user, group, holds) in read_tree(request["trees"]).items():
        if any(fnmatch.fnmatch(path, pattern) for pattern in request["unsteady"]):
            continue
        digest = holds if isinstance(holds, str) else hashlib.sha256(holds or b"").hexdigest()[:12]
        if stat.S_ISDIR(mode):
            digest = "directory"
        name = re.sub(r"\d{8}T\d{6}Z", "TIME", path)
        if "releases" in path:
            digest = "retained"
        found[name] = f"{stat.S_IMODE(mode):04o} {_user(user)} {group} {digest}"
    found.update({path: str(value) for path, value in read_values(request).items()})
    files = {name for folder in UNITS for name in os.listdir(folder)}
    files = {name[:-2] if name.endswith(".d") else name for name in files} | set(request["reads"])
    units = sorted(name for name in files | active() if ours(name) and "@." not in name)
    names = ("ActiveState", "UnitFileState", "NeedDaemonReload", "Result", "FragmentPath")
    for unit, values in properties(units, *names, "DropInPaths", "StateChangeTimestamp").items():
        since = _seconds(values.pop("StateChangeTimestamp", ""))
        read = [values.pop("FragmentPath", ""), *values.pop("DropInPaths", "").split()]
        for pattern in request["reads"].get(unit, ()):
            read += glob.glob(pattern)
        newer = [
            path
            for path in read
            if path and os.path.exists(path) and os.stat(path).st_mtime > since
        ]
        if values.get("UnitFileState") == "static":
            # Another unit, as a timer, starts it whenever it likes.
            del values["ActiveState"]
        if values.get("ActiveState") == "active" and unit.endswith(".service"):
            values["stale"] = " ".join(sorted(newer)) or "no"
        found[f"unit {unit}"] = " ".join(f"{key}={value}" for key, value in sorted(values.items()))
    return found


def _user(number):
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def serve():
    """Answer requests, a line of JSON each: a module runs in a fork, for all is imported here."""
    from ansible.module_utils import basic  # noqa: F401 - what every module needs

    for name in ("converge", "evidence_info"):
        __import__(f"{MODULES}.{name}")
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "run":
            answer = forked(request)
        else:
            answer = {"snapshot": snapshot, "restore": restore, "state": state}[request["do"]](
                request
            )
        print(json.dumps(answer), flush=True)


def forked(request):
    """Return a module's exit, output and effects."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(EFFECTS)
    child = os.fork()
    if not child:
        with open(OUTPUT, "w", encoding="utf-8") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            run(request)
        except SystemExit:
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)
    _pid, status = os.waitpid(child, 0)
    with open(OUTPUT, encoding="utf-8") as stream:
        answer = {"output": stream.read(), "killed": os.WIFSIGNALED(status)}
    if os.path.exists(EFFECTS):
        with open(EFFECTS, encoding="utf-8") as stream:
            answer["effects"] = json.load(stream)
    return answer


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    serve()
