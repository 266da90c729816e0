# Copyright (c) 2026, The Apiary authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at a host once and say what a run would change: the adapter to plugin_utils.fleet."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..plugin_utils.adapters import Deciding as DecidingAction
from ..plugin_utils.adapters import host_of, module_result, warn
from ..plugin_utils.documents import dumps, from_document
from ..plugin_utils.evidence.types import Evidence, bounded, requested
from ..plugin_utils.files import read_text, utc_now, write_text
from ..plugin_utils.findings import ApiaryError, Finding, error
from ..plugin_utils.fleet.applying import pending_of
from ..plugin_utils.fleet.deciding import ALWAYS, Decided, Deciding, due, scopes_for, warm
from ..plugin_utils.fleet.given import (
    fleet_of,
    given_evidence,
    known_architecture,
    leave,
    pending,
    run_directory,
)
from ..plugin_utils.fleet.saved import save_documents
from ..plugin_utils.fleet.serving import Wish, spans_hosts
from ..plugin_utils.fleet.survey import evaluate, lines, resources_of, takeover
from ..plugin_utils.fleet.types import Survey
from ..plugin_utils.host.role_options import options_of
from ..plugin_utils.reach import with_reach

DEFAULT_CONCERNS = ["rocm", "host_tuning", "weight_cache", "engine", "device_plugin", "replicas"]
# Read here, in the process that all hosts' workers are forked from.
ROLES = warm()
# A collection in a worker would write to, and so copy, each page that it shares with this process.
gc.collect()
gc.freeze()


class ActionModule(DecidingAction):
    """The survey action."""

    _requires_connection = False

    def decide(self, arguments, task_vars):
        """Return what is settled; write what was found to ``dest`` unless in check mode."""
        gc.freeze()  # also what the process that we are forked from has kept of other hosts since
        host = task_vars["inventory_hostname"]
        survey = self._tolerant if arguments["tolerant"] else self._survey
        return survey(host, arguments, task_vars)

    def _tolerant(self, host: str, arguments: dict, variables: dict) -> dict:
        """Survey the host; what prevents it is a finding of its survey."""
        try:
            return self._survey(host, arguments, variables)
        except AnsibleConnectionFailure as failure:
            lost = _lost("FLEET-UNREACHABLE", host, failure)
        except AnsibleError as failure:
            lost = _lost("FLEET-SURVEY", host, failure)
        except ApiaryError as refusal:
            lost = refusal.findings
        survey = Survey(host, utc_now(), reached=False, findings=lost)
        self._keep(arguments["dest"], {"survey.json": dumps(survey)})
        return _result(survey, due=[], evidence=None)

    def _survey(self, host: str, arguments: dict, variables: dict) -> dict:
        dest, tolerant = arguments["dest"], arguments["tolerant"]
        everything = self._everything(host, variables)
        chosen = everything if arguments["concerns"] is None else arguments["concerns"]
        # As a host is made right, whatever order they are given in.
        concerns = [name for name in ROLES if name in chosen and name not in ALWAYS]
        whole = set(concerns) >= set(everything) - set(ALWAYS)
        if not concerns:
            place, _document = self._gather(host, scopes_for([], False, False), dest, variables)
            return {"waiting": False, "due": [], "evidence": place}
        wish = self._wish(host, variables)
        contained = any(_runtime(one) in ("quadlet", "docker") for one in wish.deployments)
        path = arguments["evidence"]
        if path is None:
            scopes = scopes_for(concerns, whole, contained)
            path, document = self._gather(host, scopes, dest, variables)
            if "replicas" in concerns and _spans_hosts(wish, host, tolerant):
                # The other hosts of a group are still being asked: see tasks/look.yml.
                return {"waiting": True, "evidence": path, "due": concerns}
        else:
            document = given_evidence(path)[0]
        options, wrong = self._options(host, (*concerns, *ALWAYS), variables)
        if wrong and not tolerant:
            raise ApiaryError(*(one for refusal in wrong.values() for one in refusal.findings))
        hosts = variables["groups"].get("gpu_hosts") or variables["ansible_play_hosts_all"]
        deciding = Deciding(
            host=host,
            document=document,
            wish=wish,
            options=options,
            roles=ROLES,
            pods_given="device_plugin_pod_gpus" in variables,
            restart=self._may_restart(variables),
            fleet=fleet_of(variables["hostvars"], hosts),
            architecture_of=known_architecture,
            manifests=self._manifests(options),
            wrong=wrong,
        )
        decided = deciding.decide(concerns)
        reports = self._inspect(decided, variables)
        survey = decided.survey(evaluate(decided.concerns, reports, host))
        roles = due(survey, concerns, not self._task.check_mode)
        acts: tuple[str, ...] = ()
        if not tolerant:  # else nothing comes after it
            before = None if whole else pending(host)
            left = pending_of(survey, decided, reports, whole, before)
            survey, whole, acts = left.survey, left.whole, left.acts
            # In check mode also what a settled host would fetch is of interest.
            if roles or before or self._task.check_mode:
                leave(host, left)
        self._save(arguments, survey, decided, whole, "replicas" in everything)
        if not tolerant:
            _warn(survey)
        taken: list[str] = []
        if self._task.check_mode and not tolerant:
            evidence = from_document(Evidence, document, f"{host}: evidence")
            taken = lines(takeover(decided.concerns, reports, evidence))
        return {**_result(survey, roles, path, decided), "acts": list(acts), "takeover": taken}

    def _options(self, host: str, names: tuple, variables: dict):
        """Return the options of roles, and what is wrong with those of others."""
        options, wrong = {}, {}
        for name in names:
            try:
                options[name] = options_of(ROLES[name], variables, self._templar, host)
                if name == "replicas":
                    known, groups = variables["hostvars"], variables["groups"]
                    options[name] = with_reach(host, options[name], known, groups)
            except ApiaryError as refusal:
                wrong[name] = refusal
        return options, wrong

    def _value(self, variables: dict, name: str, default: object = None):
        """Return a variable, templated."""
        return self._templar.template(variables[name]) if name in variables else default

    def _everything(self, host: str, variables: dict) -> list:
        """Return the concerns of a whole run."""
        names = self._value(variables, "apiary_concerns", DEFAULT_CONCERNS)
        if not isinstance(names, (list, tuple)) or not set(map(str, names)) <= set(ROLES):
            raise _wrong(host, "apiary_concerns", f"a list of {', '.join(ROLES)}")
        return list(names)

    def _wish(self, host: str, variables: dict) -> Wish:
        several = self._value(variables, "apiary_deployments")
        one = self._value(variables, "apiary_deployment")
        asked = several or ([one] if one else [])
        if not isinstance(asked, (list, tuple)) or not all(
            isinstance(each, Mapping) for each in asked
        ):
            name = "apiary_deployments" if several else "apiary_deployment"
            raise _wrong(host, name, "a list of deployments" if several else "a deployment")
        return Wish(
            deployments=asked,
            # Of several deployments, a change to one must not move the others.
            keep_running=_truth(self._value(variables, "apiary_keep", several is not None)),
            remove_others=_truth(self._value(variables, "apiary_remove_other_deployments", False)),
        )

    def _may_restart(self, variables: dict) -> bool:
        """Return whether replicas that serve may be restarted; behind routers a rollout does it."""
        default = not variables["groups"].get("routers")
        return _truth(self._value(variables, "replicas_restart", default))

    def _manifests(self, options: dict) -> str | None:
        """Return the cluster's objects as the controller has them."""
        dest = options.get("device_plugin", {}).get("device_plugin_manifests_dest")
        path = Path(dest or "") / "device-plugin.yml"
        return read_text(str(path)) if dest and path.is_file() else None

    def _gather(self, host: str, scopes: list, dest: str | None, variables: dict):
        """Return the path of this host's evidence on the controller, and the evidence."""
        begun = utc_now()
        told = module_result(self, "evidence_info", requested(scopes), variables)
        # By this clock: a host's may be wrong, and the last run's surveys are told by their time.
        document = {**(told.get("evidence") or {}), "host": host, "collected_at": begun}
        text = bounded(document, host_of(self, variables))
        kept = dest is not None and not self._task.check_mode
        place = Path(dest) if kept else run_directory(host)
        path = (place / "evidence.json").absolute()
        write_text(path, text + "\n")
        return str(path), document

    def _inspect(self, decided: Decided, variables: dict) -> list:
        """Return what converge reports in check mode of all that was decided."""
        resources = resources_of(decided.concerns)
        if not resources:
            return []
        arguments = {"resources": resources, "secrets": decided.secrets}
        # A resource that is refused is in the reports, with the others.
        result = module_result(
            self, "converge", arguments, variables, partial="resources", check=True
        )
        return result["resources"]

    def _save(
        self, arguments: dict, survey: Survey, decided: Decided, whole: bool, serves: bool
    ) -> None:
        documents = {"survey.json": dumps(survey)} if whole else {}
        if decided.topology is not None:
            documents["topology.json"] = dumps(decided.topology)
        self._keep(arguments["dest"], documents)
        keep = arguments["save_plans"] and decided.wanted
        settled = [one.settled for one in survey.concerns if one.concern.startswith("replicas:")]
        # Routers follow these: a plan that is yet to be served is kept when it is. A look at other
        # concerns does not tell; a Kubernetes node, whose plan is for pods, has none of these.
        served = all(settled) if settled else not serves
        if keep and served and arguments["dest"] and not self._task.check_mode:
            save_documents(Path(arguments["dest"]).absolute(), decided.serving.documents())

    def _keep(self, dest: str | None, documents: dict) -> None:
        if dest is None or self._task.check_mode:
            return
        for name, text in documents.items():
            write_text(Path(dest).absolute() / name, text)


def _spans_hosts(wish: Wish, host: str, tolerant: bool) -> bool:
    try:
        return spans_hosts(wish, host)
    except ApiaryError:
        if not tolerant:
            raise
        return False  # told again where the deployment is decided


def _runtime(deployment: Mapping) -> object:
    engine = deployment.get("engine")
    return engine.get("runtime") if isinstance(engine, Mapping) else None


def _wrong(host: str, name: str, wanted: str) -> ApiaryError:
    return error("FLEET-VARIABLE", f"{host}: {name}", f"is not {wanted}", name=name)


def _truth(value: object) -> bool:
    return str(value).lower() in ("true", "yes", "on", "1")


def _lost(code: str, host: str, failure: Exception) -> tuple[Finding, ...]:
    return (Finding(code, host, str(failure).strip() or "no answer"),)


def _warn(survey: Survey) -> None:
    """Show what the roles that are skipped would have warned of."""
    for concern in survey.concerns:
        if concern.settled:
            warn(concern.findings)


def _result(survey: Survey, due: list, evidence: str | None, decided: Decided | None = None):
    """Return the little that stays in a host's variables."""
    serving = decided.serving if decided else None
    return {
        "waiting": False,
        "reached": survey.reached,
        "settled": {one.concern: one.settled for one in survey.concerns},
        "due": due,
        "objects": decided.objects if decided else None,
        "pods": serving.pods if serving else [],
        "evidence": evidence,
        "summary": serving.summary if serving else [],
    }
