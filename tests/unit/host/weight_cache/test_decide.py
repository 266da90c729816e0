# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's weights need, decided from what the host says."""

import hashlib
import json

import pytest
from ansible_collections.apiary.instinct.plugins.module_utils.resources.converge import name_of
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache import (
    decide,
)

from support.host.weights import NFS, ROOT, SHOWN, Host, codes, mounted, plan, settings


def right(*mounts, shown=SHOWN, **more):
    """A host on which the role has run."""
    host = Host(mounted(shown)).with_client()
    host.with_files(plan(host, *mounts, **more).files)
    return host.with_readahead(15360)


def failing(found):
    return [one.code for one in found.checks if one.state == "fail"]


def test_a_fresh_host_gets_client_unit_and_mount():
    found = plan(Host())
    assert found.packages == ("nfs-common",)
    (step,) = found.mounts
    assert (step.unit, step.action, step.readahead_kib) == ("srv-models.mount", "mount", 15360)
    assert found.findings == ()
    assert failing(found) == []


def test_a_right_host_needs_nothing():
    found = plan(right())
    assert found.packages == ()
    assert [step.action for step in found.mounts] == ["keep"]
    assert failing(found) == []
    assert found.findings == ()
    assert found.reboot == ()


@pytest.mark.parametrize(
    ("release", "package"),
    [("rocky", "nfs-utils"), ("ubuntu", "nfs-common")],
)
def test_the_client_is_called_as_the_family_calls_it(release, package):
    assert plan(Host(release=release)).packages == (package,)


def test_an_unknown_family_is_refused_without_a_client_and_told_of_with_one():
    assert [one.severity for one in plan(Host(release="gentoo")).findings] == ["error"]
    assert [one.severity for one in plan(Host(release="gentoo").with_client()).findings] == ["info"]


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (SHOWN.replace("ro,", "rw,"), "ro is absent, not set"),
        (SHOWN.replace("hard", "soft"), "hard is absent, not set"),
        (SHOWN.replace("vers=4.2", "vers=4.1"), "vers is 4.1, not 4.2"),
        (SHOWN.replace("nconnect=8,", ""), "nconnect is 1, not 8"),
        (SHOWN.replace("acdirmax=600", "acdirmax=60"), "acdirmax is 60, not 600"),
        (SHOWN + ",lookupcache=none", "lookupcache is none, not all"),
    ],
)
def test_other_options_in_force_are_a_reason_to_remount(shown, reason):
    host = right(shown=shown)
    (step,) = plan(host).mounts
    assert (step.action, step.reasons) == ("remount", (reason,))


def test_what_the_server_lowered_is_told_and_no_reason():
    host = right(shown=SHOWN.replace("rsize=1048576", "rsize=262144"))
    found = plan(host)
    assert [step.action for step in found.mounts] == ["keep"]
    (check,) = [one for one in found.checks if one.state == "fail"]
    assert (check.code, check.severity, check.found) == (
        "WEIGHTS-GRANTED",
        "warning",
        "rsize: 262144",
    )


def test_connections_that_another_mount_of_the_server_fixed_are_no_reason():
    host = right(shown=SHOWN.replace("nconnect=8,", ""))
    host.mounts.append(mounted("rw", "/home", "nfs-1:/home"))
    found = plan(host)
    assert [step.action for step in found.mounts] == ["keep"]
    assert failing(found) == ["WEIGHTS-OPTIONS"]


@pytest.mark.parametrize(
    "mount",
    [
        mounted(source="nfs-2:/export/models"),
        mounted("rw", kind="ext4", source="/dev/sdb1"),
    ],
)
def test_something_else_at_the_path_is_replaced(mount):
    host = Host(mount).with_client()
    assert [step.action for step in plan(host).mounts] == ["remount"]


# What releases before wrote: another text of a bind mount's unit is taken for another mount.
BIND = """# Managed by Apiary; changes made here are overwritten.
[Unit]
Description=Weights from /data/models

[Mount]
What=/data/models
Where=/srv/models
Type=none
Options=bind,ro,nosuid,nodev,nofail
TimeoutSec=90

[Install]
WantedBy=local-fs.target
"""


def test_a_bind_mount_of_an_earlier_release_stays_while_replicas_serve():
    host = Host(mounted("ro,nosuid,nodev", source="/dev/vdb1", kind="ext4")).serving()
    host.hashes["srv-models.mount"] = hashlib.sha256(BIND.encode()).hexdigest()
    found = plan(host, {"path": "/srv/models", "source": "/data/models", "type": "bind"})
    assert [step.action for step in found.mounts] == ["keep"]
    assert found.findings == ()


def test_an_automount_has_to_go():
    host = right()
    host.mounts.insert(1, mounted("rw", source="systemd-1", kind="autofs"))
    host.units["srv-models.automount"] = "generated"
    found = plan(host)
    (step,) = found.mounts
    assert (step.action, step.automounts) == ("remount", ("srv-models.automount",))
    assert codes(found.findings) == ["WEIGHTS-STALE"]


def test_a_map_of_autofs_is_refused():
    host = Host(mounted("rw", source="/etc/auto.models", kind="autofs"))
    assert "WEIGHTS-AUTOFS" in codes(plan(host).findings)


@pytest.mark.parametrize(("may", "severity"), [(True, "warning"), (False, "error")])
def test_an_fstab_entry_is_replaced_only_if_it_may(may, severity):
    found = plan(right().with_fstab("/srv/models"), replace_existing=may)
    assert [(one.code, one.severity) for one in found.findings] == [("WEIGHTS-STALE", severity)]
    assert found.mounts[0].fstab
    # What is mounted as asked stays mounted, whoever mounted it.
    assert found.mounts[0].action == "keep"


def test_nothing_is_taken_away_while_replicas_serve():
    host = right(shown=SHOWN.replace("vers=4.2", "vers=4.1")).serving()
    assert codes(plan(host).findings) == ["WEIGHTS-SERVING"]
    assert plan(host, remount_while_serving=True).findings == ()
    assert codes(plan(host, state="absent").findings) == ["WEIGHTS-SERVING"]
    assert plan(right().serving()).findings == ()


def test_a_mount_that_is_no_longer_asked_for_goes():
    host = right()
    other = {"path": "/srv/other", "source": "nfs-1:/export/other"}
    steps = {step.path: step.action for step in plan(host, other).mounts}
    assert steps == {"/srv/models": "unmount", "/srv/other": "mount"}
    gone = [one.path for one in plan(host, other).files if one.content is None]
    assert "/etc/systemd/system/srv-models.mount" in gone
    # Until it is unmounted its record stays, or a run that is killed would forget it.
    names = [name_of(each) for each in plan(host, other).resources]
    assert names.index("file /etc/apiary/weights.json") > names.index("mount /srv/models")


def test_absent_removes_all_and_then_has_nothing_to_do():
    host = right()
    found = plan(host, state="absent")
    assert [step.action for step in found.mounts] == ["unmount"]
    assert all(one.content is None for one in found.files)
    assert found.packages == ()
    host.mounts = [ROOT]
    assert [step.path for step in plan(host.with_files(found.files), state="absent").mounts] == [
        "/srv/models"
    ]


def test_different_numbers_of_connections_to_one_server_are_warned_of():
    other = {"path": "/srv/b", "source": "nfs-1:/b", "options": {"nconnect": 16}}
    assert codes(plan(Host(), NFS, other).findings) == ["WEIGHTS-NCONNECT"]


def test_evidence_without_mounts_is_refused():
    host = Host()
    host.commands["mounts"] = None
    evidence = host.evidence
    del evidence.commands["mounts"]
    with pytest.raises(ApiaryError, match="WEIGHTS-EVIDENCE"):
        decide(settings(NFS), evidence)


def put_on(kind, path="/var/cache", options="rw"):
    return lambda host: host.mounts.append(("x", path, kind, options))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda host: None, None),
        (put_on("tmpfs"), "WEIGHTS-CACHE"),
        (put_on("nfs4"), "WEIGHTS-CACHE"),
        (put_on("ext4", options="ro"), "WEIGHTS-CACHE"),
    ],
)
def test_what_no_run_changes_is_a_failing_check_with_a_remedy(change, code):
    host = right()
    change(host)
    found = [one for one in plan(host).checks if one.state == "fail"]
    assert [one.code for one in found] == ([code] if code else [])
    assert all(one.remedy and one.finding() for one in found)


def test_session_slots_are_set_live_where_the_module_is_loaded():
    path = "/sys/module/nfs/parameters/max_session_slots"
    host = right()
    assert plan(host).live == ()
    assert [one.name for one in plan(host).skipped] == ["session_slots"]
    host.files[path] = "64\n"
    assert [(one.path, one.value) for one in plan(host).live] == [(path, "180")]


def test_kerberos_needs_its_package_and_a_keytab():
    mount = {**NFS, "options": {"sec": "krb5p"}}
    found = plan(Host(), mount)
    assert found.packages == ("nfs-common", "krb5-user")
    assert [one.name for one in found.skipped] == ["nconnect", "session_slots"]
    assert "WEIGHTS-KEYTAB" in failing(found)


def test_a_cache_on_the_local_disk_brings_its_service():
    mount = {**NFS, "options": {"fsc": True}}
    found = plan(Host(), mount)
    assert found.packages == ("nfs-common", "cachefilesd")
    assert found.services == ("cachefilesd.service",)
    assert "/etc/default/cachefilesd" in [one.path for one in found.files]


def test_a_directory_on_a_disk_needs_no_mount():
    found = plan(Host(), {"path": "/srv/models", "type": "local"})
    assert (found.mounts, found.packages) == ((), ())
    assert not any(one.path.endswith(".mount") for one in found.files)


def test_a_directory_that_is_said_to_be_local_and_is_not_fails():
    found = plan(right(), {"path": "/srv/models/x", "type": "local"})
    assert "WEIGHTS-LOCAL" in failing(found)


def test_programs_learn_mounts_models_and_stores():
    staged = {"repository": "a/b", "source": "/srv/models/a/b/current", "to": "/nvme"}
    found = plan(Host(), models=["/srv/models/c/d/current"], staged=[staged])
    text = next(one.content for one in found.files if one.path == "/etc/apiary/weights.json")
    told = json.loads(text)
    assert told["mounts"] == [{"path": "/srv/models", "readahead_kib": 15360, "type": "nfs"}]
    assert (told["models"], told["stores"]) == (["/srv/models/c/d/current"], ["/nvme"])


def test_no_session_slots_leave_the_kernels_own():
    found = plan(Host(), session_slots=0)
    assert (found.live, found.skipped) == ((), ())
    assert [one.content for one in found.files if one.path.startswith("/etc/modprobe.d")] == [None]


def test_nothing_mounted_is_nothing_to_take_away():
    """Undoing twice beside replicas that serve from elsewhere is no refusal."""
    assert plan(Host().serving(), state="absent").findings == ()
