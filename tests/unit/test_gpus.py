# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One file a GPU model: all that reads facts of models reads them there."""

import dataclasses
import re
import shutil

import pytest
from ansible_collections.apiary.instinct.plugins.plugin_utils import documents, gpus
from ansible_collections.apiary.instinct.plugins.plugin_utils.acceptance import measured
from ansible_collections.apiary.instinct.plugins.plugin_utils.documents import (
    KNOWLEDGE,
    from_document,
    knowledge,
)
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.rules import alert_group
from ansible_collections.apiary.instinct.plugins.plugin_utils.telemetry.types import (
    TelemetrySettings,
)

CACHES = (gpus.gpu_models, gpus.model_of, documents.knowledge)


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Return what changes the file of one model in a copy of all knowledge."""
    copy = tmp_path / "knowledge"
    shutil.copytree(KNOWLEDGE, copy)

    def change(model, text):
        with (copy / "gpus" / f"{model.lower()}.yml").open("a", encoding="utf-8") as stream:
            stream.write(text)
        for cached in CACHES:
            cached.cache_clear()

    monkeypatch.setattr(documents, "KNOWLEDGE", copy)
    monkeypatch.setattr(gpus, "KNOWLEDGE", copy)
    yield change
    monkeypatch.undo()
    for cached in CACHES:
        cached.cache_clear()


def hot(**settings):
    rules = alert_group(TelemetrySettings(**settings))["rules"]
    return next(rule["expr"] for rule in rules if rule["alert"] == "GpuHot")


def test_a_threshold_of_one_model_is_one_line_in_its_file(changed):
    plain = hot()
    assert "apiary_gpu_info" not in plain
    changed("MI325X", "thresholds: {values: {gpu_memory_celsius: 105}, source: a test}\n")
    others, own = re.fullmatch(
        r'\((.*)\) unless on \(host, gpu\) apiary_gpu_info\{model=~"MI325X"\}'
        r' or \((.*)\) and on \(host, gpu\) apiary_gpu_info\{model=~"MI325X"\}',
        hot(),
    ).groups()
    assert others == plain
    assert own == plain.replace("> 95", "> 105")
    # What an operator sets holds for all.
    mine = {"gpu_memory_celsius": 90.0}
    assert hot(thresholds=mine) == plain.replace("> 95", "> 90")


def test_models_of_the_same_threshold_share_a_part(changed):
    for model in ("MI350X", "MI355X"):
        changed(model, "thresholds: {values: {gpu_junction_celsius: 98}, source: a test}\n")
    assert hot().count('model=~"MI350X|MI355X"') == 2


def test_acceptance_reads_the_bound_of_the_hosts_own_model(changed):
    def bound(model):
        return measured._bound("", 30.0, "average", "a2a", model, {})[1]

    assert (bound("MI300X"), bound("MI355X")) == ("fail", "pass")
    file = "thresholds: {values: {}, source: a test}\n"
    changed("MI355X", file)
    path = documents.KNOWLEDGE / "gpus/mi355x.yml"
    path.write_text(path.read_text().replace("{all_reduce: 304}", "{all_reduce: 304, a2a: 31}"))
    for cached in CACHES:
        cached.cache_clear()
    assert bound("MI355X") == "fail"


def test_what_rocm_is_tested_on_is_the_models_own():
    mi300x, mi325x = (gpus.gpu_facts(name) for name in ("MI300X", "MI325X"))
    assert mi300x.tested_on("7.2", "rocky", "9")
    assert not mi325x.tested_on("7.2", "rocky", "9")
    assert mi325x.tested_on("7.2", "ubuntu", "24")
    mi300a = gpus.gpu_facts("MI300A")
    assert mi300a.tested_on("10.0", "debian", "12")
    assert not mi300a.tested_on("10.0", "debian", "13")
    assert "6.4" not in gpus.gpu_facts("MI355X").rocm.series


def test_no_other_file_of_facts_has_a_table_by_model():
    names = "|".join(gpus.gpu_models())
    table = re.compile(rf"^\s*[^#\n]*\b({names}): [\[{{\d]", re.MULTILINE)
    for path in KNOWLEDGE.rglob("*.yml"):
        # Upstream's recipes are by GPU, as upstream has them.
        if path.parent.name != gpus.FOLDER and path.name != "recipes.yml":
            assert not table.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("model", gpus.gpu_models().values(), ids=lambda one: one.name)
def test_every_fact_of_a_model_names_its_source(model):
    for item in dataclasses.fields(model):
        part = getattr(model, item.name)
        if dataclasses.is_dataclass(part):
            assert part.source or part == type(part)(), item.name
    tuning = knowledge("host/tuning.yml")["settings"]
    assert all(tuning[name]["by_model"] for name in model.tuning.settings)
    assert set(model.thresholds.values) <= set(knowledge("telemetry/settings.yml")["thresholds"])


def test_a_device_id_is_one_models():
    numbers = [
        one for m in gpus.gpu_models().values() for one in (*m.devices, *m.virtual_functions)
    ]
    assert len(numbers) == len(set(numbers))
    assert gpus.model_of("74b9") == ("MI325X", True)
    assert gpus.model_of("ffff") == (None, None)


def test_a_misspelt_fact_is_refused():
    with pytest.raises(documents.ApiaryError, match="DOC-UNKNOWN"):
        from_document(gpus.GpuModel, {**knowledge("gpus/mi325x.yml"), "vram": 1}, "mi325x.yml")
