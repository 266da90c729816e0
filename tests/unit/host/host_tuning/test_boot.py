# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line through each boot loader: set, kept, told, given back."""

import json

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils.findings import ApiaryError
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.host_tuning import cmdline

from support.host.tuning import (
    applied,
    codes,
    failing,
    file_of,
    grub_cfg,
    host,
    said,
    tuned,
    unreadable,
)

DROP_IN = "/etc/default/grub.d/zz-apiary.cfg"
DEFAULTS = "/etc/default/grub"
INHERITED = "/etc/kernel/cmdline"
RECORD = "/var/lib/apiary/kernel-arguments.json"
REQUIRED = "iommu=pt pci=realloc=off pci=bfsort numa_balancing=disable"
OURS = f"{REQUIRED} processor.max_cstate=0 pcie_aspm=off"


def grubby(*args):
    """`grubby --info=ALL` of some kernels by their words."""
    return said(
        "".join(
            f'index={n}\nkernel="/boot/vmlinuz-{n}"\nargs="{words}"\nroot="/dev/sda1"\n'
            for n, words in enumerate(args)
        )
    )


def test_debian_gets_a_drop_in_and_update_grub():
    plan = tuned()
    assert "apiary_ours='iommu=pt pci=realloc=off pci=bfsort" in file_of(plan, DROP_IN)
    assert plan.boot_commands == (("update-grub",),)


def test_what_the_boot_loader_has_already_is_not_written_again():
    before = host()
    after = applied(before, tuned(before), boot_entries=grub_cfg(f"quiet {OURS}"))
    assert tuned(after).boot_commands == ()


def test_an_update_grub_that_was_interrupted_runs_again():
    before = host()
    after = applied(before, tuned(before))
    assert tuned(after).boot_commands == (("update-grub",),)
    assert ("TUNE-NEXT-BOOT", "boot loader") in failing(tuned(after))


def test_a_boot_entry_that_lacks_one_word_is_named():
    before = host()
    entries = grub_cfg(OURS, OURS.replace("pcie_aspm=off", "iommu=off"))
    (check,) = [
        one
        for one in tuned(applied(before, tuned(before), boot_entries=entries)).checks
        if one.code == "TUNE-NEXT-BOOT"
    ]
    assert check.found == "1 of 2 boot entries differ: pcie_aspm=off iommu=off"


def test_a_later_file_that_sets_the_line_anew_is_told_and_ends_no_loop():
    later = {"/etc/default/grub.d/zzz-local.cfg": "GRUB_CMDLINE_LINUX='quiet'\n"}
    before = host(files=later)
    after = tuned(applied(before, tuned(before)))
    assert "TUNE-GRUB-LATER" in codes(after.findings, "warning")
    assert after.boot_commands == ()
    assert after.reboot == ()


def test_a_later_file_that_adds_to_the_line_is_none_of_ours():
    later = {"/etc/default/grub.d/zzz.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX debug"\n'}
    assert "TUNE-GRUB-LATER" not in codes(tuned(host(files=later)).findings)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('GRUB_CMDLINE_LINUX="iommu=off"', "iommu=off"),
        ("GRUB_CMDLINE_LINUX='amd_iommu=off,pgtbl_v2'", "amd_iommu=off"),
        ('GRUB_CMDLINE_LINUX="pci=noats,realloc"', "pci=realloc"),
        ('export GRUB_CMDLINE_LINUX="numa_balancing=enable" # mine', "numa_balancing=enable"),
    ],
)
def test_what_others_set_otherwise_is_told(line, found):
    findings = tuned(host(files={DEFAULTS: line + "\n"})).findings
    (conflict,) = [one for one in findings if one.code == "TUNE-ARGUMENT-CONFLICT"]
    assert f"found {found}, expected" in conflict.message
    assert DEFAULTS in conflict.subject


def test_what_others_set_the_same_or_beside_it_is_no_conflict():
    files = {DEFAULTS: 'GRUB_CMDLINE_LINUX="iommu=pt,noagp pci=noats quiet"\n'}
    assert codes(tuned(host(files=files)).findings) == set()


def test_a_setting_switched_off_leaves_the_other_value_alone():
    files = {DEFAULTS: 'GRUB_CMDLINE_LINUX="iommu=off"\n'}
    plan = tuned(host(files=files), settings={"iommu": False})
    assert "iommu=pt" not in plan.arguments
    assert codes(plan.findings) == set()


def test_the_undo_removes_the_drop_in_and_nothing_else():
    before = host()
    plan = tuned(applied(before, tuned(before)), state="absent")
    assert file_of(plan, DROP_IN) is None
    assert plan.boot_commands == (("update-grub",),)
    assert DEFAULTS not in [file.path for file in plan.files]


def test_the_undo_of_a_host_that_was_never_tuned_does_nothing():
    plan = tuned(state="absent")
    assert plan.boot_commands == ()
    assert {file.content for file in plan.files} == {None}


# Boot loaders whose command lines are text of others: what is ours is recorded.
GRUBBY = {"grubby": grubby("ro quiet")}
EL = host(
    "oracle",
    files={DEFAULTS: 'GRUB_CMDLINE_LINUX="splash=silent pci=noats iommu=off"\nGRUB_X=1\n'},
    grubby=grubby("ro quiet"),
)


def test_a_variable_is_edited_and_the_rest_kept():
    plan = tuned(EL, profile="required")
    assert file_of(plan, DEFAULTS) == (
        f'GRUB_CMDLINE_LINUX="splash=silent pci=noats {REQUIRED}"\nGRUB_X=1\n'
    )
    assert json.loads(file_of(plan, RECORD))["/etc/default/grub: GRUB_CMDLINE_LINUX"] == {
        "added": ["iommu=pt", "pci=realloc=off", "pci=bfsort", "numa_balancing=disable"],
        "taken": ["iommu=off"],
    }


def test_undo_gives_back_what_was_taken():
    after = applied(EL, tuned(EL))
    plan = tuned(after, state="absent")
    assert file_of(plan, DEFAULTS) == (
        'GRUB_CMDLINE_LINUX="splash=silent pci=noats iommu=off"\nGRUB_X=1\n'
    )
    assert file_of(plan, RECORD) is None


def test_undo_keeps_what_was_there_before_us():
    files = {DEFAULTS: 'GRUB_CMDLINE_LINUX="iommu=pt quiet"\n'}
    before = host("oracle", files=files, **GRUBBY)
    after = applied(before, tuned(before))
    assert "iommu=pt" in file_of(tuned(after, state="absent"), DEFAULTS)


def test_a_variable_that_is_missing_is_added():
    before = host("oracle", files={DEFAULTS: "GRUB_X=1"}, **GRUBBY)
    text = file_of(tuned(before, profile="required"), DEFAULTS)
    assert text.startswith('GRUB_X=1\nGRUB_CMDLINE_LINUX="')


@pytest.mark.parametrize("value", ['"$(cat /x)"', '"a" "b"', '"$OTHER quiet"', '"open'])
def test_a_value_that_takes_a_shell_to_read_is_refused(value):
    files = {DEFAULTS: f"GRUB_CMDLINE_LINUX={value}\n"}
    with pytest.raises(ApiaryError, match="TUNE-GRUB-SYNTAX"):
        tuned(host("oracle", files=files, **GRUBBY))


def test_quotes_of_the_kernel_survive_the_shell_of_grub():
    text = r'GRUB_CMDLINE_LINUX="dyndbg=\"file  a.c +p\" quiet"' + "\n"
    before = host("oracle", files={DEFAULTS: text}, **GRUBBY)
    assert r"dyndbg=\"file  a.c +p\"" in file_of(tuned(before), DEFAULTS)


def test_oracle_gets_each_boot_entry_changed_by_what_it_lacks():
    before = host("oracle", grubby=grubby("ro quiet pci=noats", f"ro {REQUIRED}"))
    plan = tuned(before, profile="required")
    assert plan.boot_commands == (
        (
            "grubby",
            "--update-kernel=/boot/vmlinuz-0",
            "--remove-args=pci=noats",
            # grubby drops other words of a name that it adds.
            f"--args=pci=noats {REQUIRED}",
        ),
    )


def test_a6_amds_two_words_of_pci_are_two_and_stay_where_they_are():
    amds = "ro pci=bfsort pci=realloc=off iommu=pt numa_balancing=disable"
    assert tuned(host("oracle", grubby=grubby(amds)), profile="required").boot_commands == ()
    folded = host("oracle", grubby=grubby(f"ro {REQUIRED}".replace("off pci=b", "off,b")))
    (command,) = tuned(folded, profile="required").boot_commands
    assert command[2:] == (
        "--remove-args=pci=realloc=off,bfsort",
        "--args=pci=realloc=off pci=bfsort",
    )
    # For a comparison one word is as good.
    assert cmdline.has(("pci=noaer,realloc=off,bfsort",), "pci=realloc=off")


def test_oracle_new_kernels_inherit_ours():
    files = {"/etc/kernel/cmdline": "root=/dev/sda1 ro quiet\n"}
    plan = tuned(host("oracle", files=files, grubby=grubby("ro quiet")), profile="required")
    assert file_of(plan, "/etc/kernel/cmdline") == (f"root=/dev/sda1 ro quiet {REQUIRED}\n")
    assert "iommu=pt" in file_of(plan, DEFAULTS)


def test_oracle_undo_takes_ours_from_a_kernel_that_was_installed_since():
    before = host("oracle", grubby=grubby("ro quiet iommu=pt"))
    plan = tuned(before, profile="required")
    after = applied(before, plan, grubby=grubby(f"ro quiet {REQUIRED}", f"ro quiet {REQUIRED}"))
    first, second = tuned(after, state="absent").boot_commands
    assert "iommu=pt" not in first[2]
    assert first[2].startswith("--remove-args=pci=realloc=off pci=bfsort")
    assert "iommu=pt" in second[2]


HIDDEN = "PROXY=http://***@proxy\n"


@pytest.mark.parametrize(
    ("evidence", "path"),
    [
        (host("oracle", files={DEFAULTS: HIDDEN}, **GRUBBY), DEFAULTS),
        (host("oracle", files={DEFAULTS: "X=\ufffd\n"}, **GRUBBY), DEFAULTS),
        (unreadable(EL, DEFAULTS), DEFAULTS),
        (host("oracle", files={INHERITED: "ro x=http://***@y\n"}, **GRUBBY), INHERITED),
        (unreadable(host("oracle", **GRUBBY), INHERITED), INHERITED),
        (unreadable(host("oracle", gone=[DEFAULTS], **GRUBBY), "/sys/x", "ETIMEDOUT"), DEFAULTS),
    ],
)
def test_a_file_whose_text_is_not_known_is_never_written(evidence, path):
    plan = tuned(evidence)
    (finding,) = [one for one in plan.findings if one.code == "TUNE-FILE-UNKNOWN"]
    assert (finding.severity, finding.subject) == ("error", f"gpu-001: {path}")
    assert path in finding.remedy
    assert "iommu=pt" in finding.remedy
    assert path not in [file.path for file in plan.files]


def test_an_unknown_text_that_is_right_already_stops_nothing():
    after = applied(EL, tuned(EL))
    after.files[DEFAULTS] += HIDDEN
    plan = tuned(after)
    assert codes(plan.findings, "error") == set()
    assert DEFAULTS not in [file.path for file in plan.files]


def test_the_undo_of_a_file_that_can_no_longer_be_read_is_refused():
    before = host("oracle", **GRUBBY)
    after = unreadable(applied(before, tuned(before)), DEFAULTS)
    assert codes(tuned(after, state="absent").findings) == {"TUNE-FILE-UNKNOWN"}
    assert codes(tuned(unreadable(EL, DEFAULTS), state="absent").findings) == set()


def test_the_undo_leaves_an_empty_file_where_it_is():
    before = host("oracle", files={DEFAULTS: ""}, **GRUBBY)
    assert DEFAULTS not in [file.path for file in tuned(before, state="absent").files]


@pytest.mark.parametrize("word", ["single", "recovery"])
def test_a_recovery_entry_is_none_of_ours(word):
    before = host()
    entries = grub_cfg(OURS, f"{word} nomodeset")
    plan = tuned(applied(before, tuned(before), boot_entries=entries))
    assert plan.boot_commands == ()
    assert ("TUNE-NEXT-BOOT", "boot loader") not in failing(plan)


def test_an_entry_of_another_system_is_none_of_ours():
    before = host()
    ours, other = grub_cfg(OURS).stdout, grub_cfg("quiet").stdout.replace("sda1", "sdb1")
    after = applied(before, tuned(before), boot_entries=said(ours + other))
    assert tuned(after).boot_commands == ()
    after.files["/proc/cmdline"] = "root=/dev/sdb1 ro\n"
    assert tuned(after).boot_commands == (("update-grub",),)


def test_where_no_entry_is_of_the_running_system_all_are_looked_at():
    before = host(cmdline="root=/dev/vda1 ro")
    assert tuned(applied(before, tuned(before))).boot_commands == (("update-grub",),)


def test_the_undo_clears_a_menu_whose_drop_in_somebody_removed():
    menu = grub_cfg(f"quiet {OURS}")
    assert tuned(host(boot_entries=menu), state="absent").boot_commands == (("update-grub",),)


@pytest.mark.parametrize("line", ["numa_balancing=disable", "numa-balancing=disable"])
def test_the_undo_leaves_a_word_that_another_file_asks_for(line):
    files = {DEFAULTS: f'GRUB_CMDLINE_LINUX="{line}"\n'}
    evidence = host(files=files, boot_entries=grub_cfg(OURS))
    assert tuned(evidence, state="absent").boot_commands == ()
    hidden = unreadable(host(boot_entries=grub_cfg(OURS)), DEFAULTS)
    assert tuned(hidden, state="absent").boot_commands == ()


def test_a_damaged_record_stops_nothing():
    files = {RECORD: '{"x": []}'}
    assert tuned(host("oracle", files=files, grubby=grubby("ro"))).boot_commands


@pytest.mark.parametrize(
    ("files", "gone", "named"),
    [
        ({"/etc/kernelstub/configuration": "{}"}, ["/usr/sbin/update-grub"], "kernelstub"),
        ({"/efi/loader/loader.conf": ""}, ["/usr/sbin/update-grub"], "systemd-boot"),
        ({}, ["/usr/sbin/update-grub"], "debian"),
    ],
)
def test_another_boot_loader_is_left_alone_and_told(files, gone, named):
    plan = tuned(host(files=files, gone=gone))
    (finding,) = [one for one in plan.findings if one.code == "TUNE-BOOT-LOADER"]
    assert named in finding.message
    assert "iommu=pt" in finding.remedy
    assert plan.boot_commands == ()
    assert plan.reboot == ()
    assert ("TUNE-ARGUMENT", "iommu=pt") in failing(plan)


def test_a_container_without_boot_loader_skips_its_command_line():
    plan = tuned(host(virtualization="docker", gone=["/usr/sbin/update-grub"]))
    assert codes(plan.findings) == set()
    assert "TUNE-ARGUMENT" not in {code for code, _subject in failing(plan)}
    assert any("a container has no boot loader" in one.reason for one in plan.skipped)


def test_a_command_line_of_somebody_else_is_only_looked_at():
    plan = tuned(boot_loader="none")
    assert DROP_IN not in [file.path for file in plan.files]
    assert plan.reboot == ()
    assert ("TUNE-ARGUMENT", "iommu=pt") in failing(plan)


def test_a_required_word_that_only_a_boot_brings_is_a_reason_for_one():
    assert tuned().reboot == (
        "the running kernel was not told iommu=pt",
        "the running kernel was not told pci=realloc=off",
        "the running kernel was not told pci=bfsort",
    )


def test_a_word_that_is_only_recommended_is_none():
    assert tuned(host(cmdline=f"ro {REQUIRED}")).reboot == ()


def test_a_kernel_that_was_told_the_contrary_has_to_be_rebooted():
    plan = tuned(host(cmdline=f"ro {REQUIRED} amd_iommu=off"))
    assert plan.reboot == ("the running kernel was told amd_iommu=off instead of iommu=pt",)


def test_a_command_line_that_could_not_be_read_reboots_nobody():
    plan = tuned(host(gone=["/proc/cmdline"]))
    assert plan.reboot == ()
    assert {one.state for one in plan.checks if one.code == "TUNE-ARGUMENT"} == {"unknown"}
