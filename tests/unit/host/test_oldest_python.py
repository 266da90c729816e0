# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs that stay on hosts run by their own python3, so no system may have an older one."""

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import knowledge

# python3 of each release, by the distributions' package lists.
PYTHON = {
    "ubuntu": {"22.04": (3, 10), "24.04": (3, 12), "26.04": (3, 14)},
    "debian": {"12": (3, 11), "13": (3, 13)},
    "rhel": {"9": (3, 9), "10": (3, 12)},
    "ol": {"9": (3, 9), "10": (3, 12)},
    "rocky": {"9": (3, 9), "10": (3, 12)},
    "almalinux": {"9": (3, 9), "10": (3, 12)},
}


def test_a8_no_system_of_the_tables_has_a_python_that_our_programs_cannot_be_run_by():
    rows = knowledge("doctor.yml")["answers"]
    least = next(row["minimum"] for row in rows if "minimum" in row)
    minimum = tuple(map(int, least.split(".")))
    for name, facts in knowledge("host/rocm/systems.yml")["systems"].items():
        for version in facts["versions"]:
            assert PYTHON[name][version] >= minimum
    for series in knowledge("host/rocm/support.yml")["series"].values():
        for name, versions in series["systems"].items():
            known = PYTHON[name]
            assert all((known.get(one) or known[one.split(".")[0]]) >= minimum for one in versions)
