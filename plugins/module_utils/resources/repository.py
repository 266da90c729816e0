# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys and source files of package repositories, proven in a trial before any is written."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import tempfile
from typing import Any

from ansible.module_utils.urls import fetch_url

from ..evidence.host import without_credentials
from ..finding import ApiaryError, error
from ..packages import keys as rocm_keys
from ..packages.managers import MANAGERS, Manager, last_words, runner
from . import file
from .types import PATH, REQUIRED, TEXT, Difference, Host, Resource, diff_entry, entries

NAMED_BY = "name"
OPTIONS: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
    "keys": entries(
        {
            "url": REQUIRED,
            "path": PATH,
            "fingerprint": REQUIRED,
            "format": {"type": "str", "choices": ["armored", "binary"], "default": "binary"},
        },
        default=[],
        no_log=False,
    ),
    "files": entries(
        {**file.OPTIONS, "keep_original": {"type": "bool", "default": True}}, default=[]
    ),
    "packages": entries({"name": REQUIRED, "version": TEXT, "spec": TEXT}, default=[]),
}

ADDRESS = re.compile(r"(?:https?|file|ftp):/[^\s\],]*")
SURROGATE = re.compile("[\udc80-\udcff]")
FETCH_SECONDS = 30
SHOWN = 12


def matches(version: str, wanted: str | None) -> bool:
    """Say whether a version, EPOCH:VERSION-RELEASE, is one that was asked for."""
    if wanted is None:
        return True
    plain = version.split(":", 1)[-1]
    return any(fnmatch.fnmatchcase(one, wanted) for one in (version, plain, plain.split("-")[0]))


def inspect(host: Host, resource: Resource) -> Difference:
    manager = MANAGERS[resource["manager"]](runner(host.module))
    work = Repositories(host, manager, resource)
    proven = f"repository {resource['name']} is proven"
    work.read()
    if proven not in host.memo:
        work.prove()
        host.memo.add(proven)
    return Difference(tuple(work.diff()), actual=work)


def apply(host: Host, resource: Resource, difference: Difference) -> None:
    try:
        difference.actual.write()
    except OSError as failure:
        subject = str(failure.filename or "this host")
        raise error("HOST-FILE", subject, str(failure.strerror)) from None


class Repositories:
    """The keys and files of one resource."""

    def __init__(self, host: Host, manager: Manager, requested: dict[str, Any]) -> None:
        self.host, self.manager = host, manager
        self.requested_keys: list[dict[str, str]] = requested["keys"]
        self.files: list[dict[str, Any]] = requested["files"]
        self.packages: list[dict[str, Any]] = requested["packages"]
        compared = [(item, file.inspect(host, item)) for item in self.files]
        self.changes = [(item, change) for item, change in compared if change.changed]
        # Every key's content, and of those that change what is there now.
        self.keys: dict[str, bytes] = {}
        self.new_keys: dict[str, tuple[bytes | None, str]] = {}

    def read(self) -> None:
        """Read every key, from its file where that already is the right one."""
        for key in self.requested_keys:
            path, wanted = key["path"], "".join(key["fingerprint"].split()).upper()
            before = read_bytes(path)
            if before is not None and is_key(before, wanted, key["format"]):
                self.keys[path] = before
                continue
            packets = self._fetched(key, wanted)
            self.keys[path] = rocm_keys.armor(packets) if key["format"] == "armored" else packets
            self.new_keys[path] = (before, wanted)

    def _fetched(self, key: dict[str, str], wanted: str) -> bytes:
        """Fetch a key file and return the wanted key's packets."""
        url = without_credentials(key["url"])
        try:
            return rocm_keys.chosen(self._bytes(key["url"]), wanted)
        except rocm_keys.WrongKey as found:
            raise error(
                "ROCM-KEY-FINGERPRINT",
                url,
                f"found {found}, expected {wanted}; nothing was written",
            ) from None
        except rocm_keys.KeyProblem as problem:
            raise error("ROCM-KEY-UNREADABLE", url, str(problem)) from None

    def _bytes(self, url: str) -> bytes:
        path = url[7:] if url.startswith("file://") else url
        if path.startswith("/"):
            try:
                with open(path, "rb") as stream:
                    return stream.read()
            except OSError as failure:
                raise error(
                    "ROCM-KEY-UNREADABLE", url, f"can't be read: {failure.strerror}"
                ) from None
        response, info = fetch_url(self.host.module, url, timeout=FETCH_SECONDS)
        if response is None or info["status"] != 200:
            raise error(
                "ROCM-KEY-UNREADABLE",
                without_credentials(url),
                f"can't be fetched: {without_credentials(str(info['msg']))}",
            )
        content: bytes = response.read()
        return content

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Return the files that name repositories and are to be there."""
        return [
            one
            for one in self.files
            if one["content"] is not None and self.manager.is_source(one["path"])
        ]

    def prove(self) -> None:
        """Read the repositories in a temporary directory and look for the packages there."""
        changed = {item["path"] for item, _change in self.changes}
        if not self.new_keys and not changed & {one["path"] for one in self.sources}:
            return
        trial = tempfile.mkdtemp(prefix="apiary-trial-")
        try:
            os.chmod(trial, 0o755)  # noqa: S103 - apt fetches as a user of its own
            self._prove_in(trial)
        finally:
            shutil.rmtree(trial, ignore_errors=True)  # a failure of the trial says more

    def _prove_in(self, trial: str) -> None:
        self.manager.prepare(trial)
        places = {}
        for path, content in self.keys.items():
            places[path] = os.path.join(trial, "keys", os.path.basename(path))
            with open(places[path], "wb") as stream:
                stream.write(content)
        for one in self.sources:
            text = one["content"]
            for path, place in places.items():
                text = text.replace(path, place)
            target = os.path.join(trial, "sources", os.path.basename(one["path"]))
            with open(target, "w", encoding="utf-8") as stream:
                stream.write(text)
        for one in self.sources:
            target = os.path.join(trial, "sources", os.path.basename(one["path"]))
            code, output = self.manager.prove(trial, target)
            if code != 0:
                raise self._unusable(one, output)
        for package in self.packages:
            if package["version"] is not None:
                self._must_offer(package, trial)

    def _unusable(self, source: dict[str, Any], output: str) -> ApiaryError:
        """Return what is wrong with a repository, from what its package manager reported."""
        addresses = [one for one in ADDRESS.findall(source["content"]) if "key" not in one.lower()]
        subject = without_credentials((addresses or [source["path"]])[0])
        words = without_credentials(last_words(output))
        kinds = [kind for pattern, kind in self.manager.meanings if re.search(pattern, output)]
        code = kinds[0] if kinds else "ROCM-REPOSITORY-UNREACHABLE"
        return error(code, subject, f"{words}; nothing was written")

    def _must_offer(self, package: dict[str, Any], trial: str) -> None:
        offered = self.manager.versions(package["name"], trial)
        if not any(matches(version, package["version"]) for version in offered):
            found = ", ".join(offered[:SHOWN]) or "no package of this name"
            raise error(
                "ROCM-PACKAGE-VERSION",
                package["name"],
                f"found {found}, expected {package['version']}; nothing was written",
            )

    def write(self) -> None:
        """Write keys and files; put the earlier ones back where they can't be read."""
        if not self.changes and not self.new_keys:
            return
        for path in self.new_keys:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            self._put(path, self.keys[path])
        modes = {item["path"]: _mode(item["path"]) for item, _change in self.changes}
        for item, change in self.changes:
            file.apply(self.host, item, change)
        code, output = self.manager.run(self.manager.command("readable"))
        if code == 0:
            return
        for item, change in self.changes:
            path, before = item["path"], change.actual[0]
            if before is not None:
                file.write(self.host.module, path, before, modes[path])
            elif os.path.exists(path):
                os.unlink(path)
        for path, (before, _fingerprint) in self.new_keys.items():
            if before is None:
                os.unlink(path)
            else:
                self._put(path, before)
        raise error(
            "ROCM-REPOSITORY-CONFLICT",
            self.manager.sources,
            f"{without_credentials(last_words(output))}; the earlier files are in place again",
        )

    def _put(self, path: str, content: bytes) -> None:
        text = content.decode("utf-8", errors="surrogateescape")
        file.write(self.host.module, path, text, "0644")

    def diff(self) -> list[dict[str, str]]:
        """Return what differs; of keys, their fingerprints."""
        entries = [entry for _item, change in self.changes for entry in change.diff]
        for entry in entries:
            # A key that goes away is a file like any other, and no text.
            for side in ("before", "after"):
                if SURROGATE.search(entry[side]):
                    entry[side] = fingerprints(entry[side].encode("utf-8", "surrogateescape"))
        for path, (before, wanted) in self.new_keys.items():
            earlier = "" if before is None else fingerprints(before)
            entries.append(diff_entry(path, earlier, f"OpenPGP key {wanted}\n"))
        return entries


def _mode(path: str) -> str:
    try:
        return f"{os.stat(path).st_mode & 0o7777:04o}"
    except FileNotFoundError:
        return "0644"


def read_bytes(path: str) -> bytes | None:
    """Return a file's content, None where there is none."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def is_key(data: bytes, wanted: str, form: str) -> bool:
    """Say whether a key file holds exactly the wanted key, in the wanted format."""
    try:
        found = list(rocm_keys.keys(data))
    except rocm_keys.KeyProblem:
        return False
    return found == [wanted] and data.startswith(b"-----") == (form == "armored")


def fingerprints(data: bytes) -> str:
    """Return what a key file holds, for a diff."""
    try:
        return "".join(f"OpenPGP key {name}\n" for name in rocm_keys.keys(data)) or "no key\n"
    except rocm_keys.KeyProblem:
        return "no key\n"
