# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options and paths of mounts: what is asked for, and how kernel and systemd write them."""

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache import files
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.mounts import (
    read_mounts,
    unescape,
    unit_name,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.options import (
    differences,
    requested,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.weight_cache.settings import (
    Mount,
    Settings,
)

from support.host.weights import Host

KERNEL = "6.1.0"


def text(kernel=KERNEL, source="nfs-1:/m", kind="nfs", **options):
    return requested(Mount("/m", source, kind, options=options), kernel).text.split(",")


def test_the_profile_is_the_default_and_in_its_order():
    entries = knowledge("host/weight_cache.yml")["profiles"]["read_mostly"]
    assert [word.split("=")[0] for word in text()] == [one["option"] for one in entries]


@pytest.mark.parametrize("profile", ["read_mostly", "plain"])
def test_every_option_says_why_and_where_from(profile):
    for entry in knowledge("host/weight_cache.yml")["profiles"][profile]:
        assert entry["reason"]
        assert entry["source"].startswith("https://")


@pytest.mark.parametrize(
    ("options", "there", "gone"),
    [
        ({"rw": True}, "rw", "ro"),
        ({"nconnect": 16}, "nconnect=16", "nconnect=8"),
        ({"noexec": None}, "nosuid", "noexec"),
        ({"noexec": False}, "nosuid", "noexec"),
        ({"cto": True}, "cto", "nocto"),
        ({"exec": True}, "exec", "noexec"),
        ({"nfsvers": "4.1"}, "vers=4.1", "nfsvers=4.1"),
        ({"vers": "3"}, "nolock", "vers=4.2"),
        ({"proto": "rdma"}, "port=20049", "proto=tcp"),
        ({"rdma": True}, "proto=rdma", "rdma"),
        ({"sec": "krb5i"}, "sec=krb5i", "nconnect=8"),
    ],
)
def test_asked_options_go_over_the_profile(options, there, gone):
    found = text(**options)
    assert there in found
    assert gone not in found


def test_an_ipv6_address_brings_the_transport_of_its_family():
    assert "proto=tcp6" in text(source="[2001:db8::1]:/m")
    assert "proto=rdma6" in text(source="[2001:db8::1]:/m", proto="rdma")


def test_an_old_kernel_goes_without_what_it_does_not_know():
    found = requested(Mount("/m", "nfs-1:/m"), "4.18.0-553")
    assert "nconnect" not in found.options
    assert [one.name for one in found.skipped] == ["nconnect"]
    # Who asks for it by name gets it: distributions port features back.
    asked_for = requested(Mount("/m", "nfs-1:/m", options={"nconnect": 4}), "4.18.0-553")
    assert (asked_for.options["nconnect"], asked_for.skipped) == (4, ())


def test_other_types_are_passed_through():
    assert text(kind="lustre", source="10.0.0.1@o2ib:/fs", flock=True) == [
        *("ro", "nosuid", "nodev", "nofail", "flock")
    ]
    assert text(kind="bind", source="/data")[0] == "bind"


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        ({"proto": "tcp"}, {"proto": "tcp6"}),
        ({"vers": "4"}, {"vers": "4.2"}),
        ({"lookupcache": "all"}, {}),
        ({"port": 0}, {}),
        ({"_netdev": True, "retry": 10000}, {}),
        ({"size": "1g"}, {}),
    ],
)
def test_what_is_in_force_shows_in_another_way(wanted, shown):
    assert differences(wanted, shown) == ()


@pytest.mark.parametrize(
    ("wanted", "shown", "found"),
    [
        ({"proto": "tcp6"}, {"proto": "tcp"}, "tcp"),
        ({"vers": "4"}, {"vers": "4.0"}, "4.0"),
        ({"ro": True}, {"rw": True}, "absent"),
        ({"sec": "krb5"}, {"sec": "sys"}, "sys"),
        ({"rsize": 1048576}, {}, "absent"),
    ],
)
def test_what_is_not_in_force_is_named(wanted, shown, found):
    (one,) = differences(wanted, shown)
    assert (one.option, one.found, one.lowered) == (next(iter(wanted)), found, False)


@pytest.mark.parametrize(
    ("path", "unit"),  # as `systemd-escape --path --suffix=mount` of systemd 252 prints them
    [
        ("/srv/models", "srv-models.mount"),
        ("/srv/my-models", r"srv-my\x2dmodels.mount"),
        ("/.hidden/a b", r"\x2ehidden-a\x20b.mount"),
        ("/mnt/größe_1.0:x", r"mnt-gr\xc3\xb6\xc3\x9fe_1.0:x.mount"),
    ],
)
def test_units_are_named_as_systemd_names_them(path, unit):
    assert unit_name(path) == unit


def test_paths_are_read_as_the_kernel_escapes_them():
    assert unescape(r"/srv/a\040b\134c") == "/srv/a b\\c"
    assert unescape(r"/gr\303\266\303\237e") == "/größe"


def test_vllm_takes_the_first_of_equal_mount_points_and_the_kernel_the_last():
    host = Host(("systemd-1", "/m", "autofs", "rw"), ("s:/m", "/m", "nfs4", "ro"))
    found = read_mounts(host.evidence)
    assert found.as_vllm_sees("/m/model") == "autofs"
    assert found.holding("/m/model").type == "nfs4"
    assert found.as_vllm_sees("/mm") == "ext4"


@pytest.mark.parametrize(
    ("name", "mount"),
    [
        ("nfs", Mount("/srv/models", "nfs-1:/export/models")),
        (
            "rdma_v6",
            Mount("/srv/a b", "[2001:db8::1]:/m", options={"proto": "rdma", "fsc": True}),
        ),
        ("bind", Mount("/srv/models", "/data/models", "bind")),
        ("lustre", Mount("/scratch", "10.0.0.1@o2ib:/fs", "lustre", options={"_netdev": True})),
    ],
)
def test_units_are_as_reviewed(golden, name, mount):
    golden(f"host/weight_cache/{name}.mount", files.mount_unit(mount, requested(mount, KERNEL)))


def test_the_other_files_are_as_reviewed(golden):
    mount = Mount("/srv/models", "nfs-1:/export/models")
    settings = Settings(mounts=(mount,), models=("/srv/models/100%/b/current",))
    written = files.files(settings, "debian", [(mount, requested(mount, KERNEL))])
    golden(
        "host/weight_cache/files.txt",
        "".join(
            f"## {one.path} {one.mode}\n{one.content}"
            for one in written
            if "/libexec/" not in one.path and not one.path.endswith(".mount")
        ),
    )


def test_programs_run_on_their_own():
    for name in ("check", "readahead"):
        text = files.program(name)
        assert text.startswith("#!/usr/bin/env -S python3 -B\n")
        assert "ansible" not in text.replace("playbooks/weights.yml", "")
