# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Laws of the role `rocm`: versions read back, one run is enough, undoing undoes."""

from dataclasses import replace

from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    from_document,
    to_document,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.host.rocm import RocmPlan, types
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from support.host.rocm import MI300X, MI325X, MI355X, SYSTEMS, Machine, changes

NUMBERS = st.integers(0, 99)
VERSIONS = st.builds(types.Version, st.integers(1, 99), NUMBERS, NUMBERS)
KERNELS = st.sampled_from(["6.8.0-99-generic", "5.14.0-427.el9.x86_64", "6.1.0-41-amd64"])
# What may be lying about on a host before the role comes.
PACKAGES = {
    "amdgpu-dkms": ["1:6.16.13.30300300-2327507.24.04", "1:6.12.12.60403-2194681.22.04"],
    "amdgpu-dkms-firmware": ["1:6.12.12.60403-2194681.22.04"],
    "amdgpu-install": ["6.4.60403-1"],
    "rocm-core": ["7.2.3.70203-80~24.04", "6.4.3.60403-128~22.04"],
    "rocminfo": ["5.7.1-3build1", "1.0.0.70204-93~24.04"],
    "rocfft": ["1.0.32.60403-128~22.04"],
    "amdrocm-base10.0": ["10.0.0-4", "10.0.1-1"],
    "amdrocm7.14-gfx942": ["7.14.0-3"],
    "python3-wheel": ["0.42.0-2"],
}
STRAY = {
    "/etc/apt/sources.list.d/amdgpu.list": "deb https://repo.radeon.com/amdgpu/6.3/ubuntu a b\n",
    "/etc/apt/sources.list.d/rocm.sources": "Types: deb\n",
    "/etc/apt/preferences.d/rocm-pin-600": "Package: *\n",
    "/etc/yum.repos.d/rocm.repo": "[rocm]\n",
}


@st.composite
def machines(draw):
    """A host in any state: kernels with and without headers, packages of any release, leftovers."""
    system = draw(st.sampled_from(sorted(SYSTEMS)))
    kernels = (SYSTEMS[system][2], *draw(st.lists(KERNELS, max_size=2, unique=True)))
    kernels = tuple(dict.fromkeys(kernels))
    names = draw(st.lists(st.sampled_from(sorted(PACKAGES)), unique=True))
    packages = {name: draw(st.sampled_from(PACKAGES[name])) for name in names}
    files = draw(st.lists(st.sampled_from(sorted(STRAY)), unique=True))
    return Machine(
        system=system,
        kernels=kernels,
        headers=tuple(draw(st.lists(st.sampled_from(kernels), unique=True))),
        packages=packages,
        broken=tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
        held=tuple(draw(st.lists(st.sampled_from(names), unique=True))) if names else (),
        files={path: STRAY[path] for path in files},
        gpus=draw(st.sampled_from([(MI325X,) * 8, (MI300X,), (MI355X, MI325X)])),
        listed=draw(st.sampled_from([None, ""])),
        ramdisk_at=draw(st.sampled_from([50.0, 200.0])),
        loaded=draw(st.sampled_from([None, {"srcversion": "X"}, {"version": "6.14.14"}])),
    )


WANTED = st.fixed_dictionaries(
    {
        "rocm_version": st.sampled_from(["6.4.3", "7.1.1", "7.2.4", "7.14.1", "10.0.0"]),
        "profile": st.sampled_from(["serving", "native", "full"]),
        "driver": st.booleans(),
        "hold_kernel": st.booleans(),
        "remove_legacy": st.just(True),
        "allow_unsupported": st.just(True),
        "burn_in": st.booleans(),
    }
)


@given(VERSIONS)
def test_a_version_reads_back(version):
    assert types.parse(str(version)) == version
    assert types.parse(version.directory) == version


@given(VERSIONS, VERSIONS)
def test_versions_of_one_product_have_tokens_of_their_own(one, other):
    # ROCm's are below 30, the driver's own above.
    if (one.major < 30) == (other.major < 30):
        assert (one.token == other.token) is (one == other)


@given(VERSIONS, NUMBERS)
def test_the_driver_is_found_in_its_package(version, build):
    found = types.module_of(f"1:6.16.13.{version.token}-{build}.24.04")
    assert (found == ("6.16.13", f"{build}.24.04")) is (5 <= len(version.token) <= 8)


@examples(1)
@given(machines(), WANTED)
def test_one_run_is_enough(machine, wanted):
    done = machine.applied(machine.plan(**wanted))
    assert changes(done.plan(**wanted)) == {}
    after = done.rebooted().plan(**wanted)
    assert changes(after) == {}
    assert after.reboot == ()
    assert [one for one in after.checks if one.state != "pass"] == []


@examples(1)
@given(machines(), WANTED)
def test_undoing_leaves_nothing_of_amd(machine, wanted):
    done = machine.applied(machine.plan(**wanted)).rebooted()
    gone = done.applied(done.plan(**{**wanted, "state": "absent"}))
    left = {one for name, one in gone.packages.items() if name.startswith(("amd", "roc", "hip"))}
    # The distribution's own is nobody's to remove.
    assert left <= {"5.7.1-3build1"}
    assert changes(gone.plan(**{**wanted, "state": "absent"})) == {}


@examples(0.5)
@given(machines(), WANTED)
def test_a_plan_survives_its_journey_as_json(machine, wanted):
    plan = machine.plan(**wanted)
    assert from_document(RocmPlan, to_document(plan), "plan") == plan


@examples(0.5)
@given(machines(), WANTED)
def test_replicas_are_never_disturbed(machine, wanted):
    unit = "apiary-a-0.service loaded active running A\n"
    plan = replace(machine, replicas=unit).plan(**wanted)
    refused = "ROCM-SERVING" in {one.code for one in plan.findings if one.severity == "error"}
    assert refused is bool(plan.disruptive)
