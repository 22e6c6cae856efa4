"""Runs OpenStack's tempest against one cloud of clouds.yaml and says how it went.

    tempest.py --cloud NAME --dir DIR [--list FILE] [--only REGEX] [--workers N]

Reads $OS_CLIENT_CONFIG_FILE as OpenStack's own clients do; the cloud must be an administrator's, for whom tempest makes
projects, users and networks. The list names the tests that passed on real services; in a line "NAME # reason" the reason
tells why it does not pass here, and it is run all the same. A test without a reason that does not pass runs once more,
after all others: some wait for less time than a busy machine takes. Ends with 1 when it does not pass then either.
"""

import argparse
import configparser
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import subunit
import testtools
import yaml

BIN = pathlib.Path(sys.executable).parent


def login(cloud):
    """Logs in with a password; returns the token and the endpoint of each type of service."""
    auth = cloud["auth"]
    user = {"name": auth["username"], "password": auth["password"], "domain": {"name": auth["user_domain_name"]}}
    project = {"name": auth["project_name"], "domain": {"name": auth["project_domain_name"]}}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": {"project": project}}}
    request = urllib.request.Request(
        auth["auth_url"].rstrip("/") + "/auth/tokens", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        token, catalog = answer.headers["X-Subject-Token"], json.load(answer)["token"]["catalog"]
    public = {
        service["type"]: endpoint["url"]
        for service in catalog
        for endpoint in service["endpoints"]
        if endpoint["interface"] == "public"
    }
    return token, public


def settings(cloud):
    """What tempest must be told of this cloud; everything else it asks for itself."""
    token, public = login(cloud)

    def get(service, path):
        request = urllib.request.Request(public[service].rstrip("/") + path, headers={"X-Auth-Token": token})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    images = sorted(get("image", "/v2/images")["images"], key=lambda image: image["name"])
    # The smallest that have a disk: they boot from an image.
    flavors = [one for one in get("compute", "/flavors/detail")["flavors"] if one["disk"] > 0]
    flavors.sort(key=lambda flavor: (flavor["ram"], flavor["name"]))
    external = get("network", "/v2.0/networks?router%3Aexternal=true")["networks"][0]
    auth = cloud["auth"]
    return {
        "DEFAULT": {"log_file": "tempest.log"},
        "oslo_concurrency": {"lock_path": "locks"},
        "auth": {
            "use_dynamic_credentials": "true",
            "admin_username": auth["username"],
            "admin_password": auth["password"],
            "admin_project_name": auth["project_name"],
            "admin_domain_name": auth["project_domain_name"],
            "tempest_roles": "member",
        },
        "identity": {"auth_version": "v3", "uri_v3": auth["auth_url"], "region": cloud["region_name"]},
        "identity-feature-enabled": {"application_credentials": "true"},
        "compute": {
            "image_ref": images[0]["id"],
            "image_ref_alt": images[-1]["id"],
            "flavor_ref": flavors[0]["id"],
            "flavor_ref_alt": flavors[1]["id"],
            "build_timeout": "120",
            "build_interval": "1",
            "min_microversion": "2.1",
            "max_microversion": "2.90",
        },
        # Nothing boots for real in either world: what needs a hypervisor is off.
        "compute-feature-enabled": {
            **dict.fromkeys(
                ["resize", "pause", "suspend", "snapshot", "rescue", "vnc_console", "live_migration", "personality"],
                "false",
            ),
            "console_output": "true",
            "config_drive": "true",
        },
        "network": {"public_network_id": external["id"], "project_networks_reachable": "false"},
        "network-feature-enabled": {"port_security": "true", "floating_ips": "true"},
        "validation": {"run_validation": "false"},
        "volume": {"storage_protocol": "fake", "vendor_name": "fake", "build_interval": "1"},
        "volume-feature-enabled": dict.fromkeys(["backup", "snapshot", "clone"], "false"),
        "service_available": {
            **dict.fromkeys(["cinder", "glance", "nova", "neutron"], "true"),
            **dict.fromkeys(["swift", "horizon"], "false"),
        },
    }


def prepare(folder, cloud):
    """A workspace of tempest, made anew."""
    folder.mkdir(parents=True, exist_ok=True)
    # Of one's own, so that no workspace of this user is touched.
    workspaces = ["--workspace-path", folder / "workspaces.yaml"]
    if not (folder / ".stestr.conf").exists():
        subprocess.run([BIN / "tempest", "init", *workspaces, folder], check=True, stdout=subprocess.DEVNULL)
    config = configparser.ConfigParser(interpolation=None)
    config.read_dict(settings(cloud))
    with open(folder / "etc" / "tempest.conf", "w", encoding="utf-8") as out:
        config.write(out)


def run(folder, names, workers):
    """Runs the tests; returns the outcome of each."""
    include = folder / "include.txt"
    include.write_text("".join(f"^{re.escape(name)}(\\[|$)\n" for name in names))
    with open(folder / "run.log", "a", encoding="utf-8") as log:
        command = [BIN / "tempest", "run", "--concurrency", str(workers), "--include-list", include]
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False)
    last = subprocess.run([BIN / "stestr", "last", "--subunit"], cwd=folder, stdout=subprocess.PIPE, check=False).stdout
    outcomes = {}

    def ended(test):
        # A class that could not be set up stands for all its tests.
        name = test["id"].split("[")[0]
        if test["status"] != "inprogress":
            outcomes[name] = (test["status"], "".join(detail.as_text() for detail in test["details"].values()))

    result = testtools.StreamToDict(ended)
    result.startTestRun()
    subunit.ByteStreamToStreamResult(io.BytesIO(last), non_subunit_name="stdout").run(result)
    result.stopTestRun()
    return outcomes


def reason(text):
    """The last line of a traceback that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "}}}"))]
    return lines[-1][:160] if lines else ""


def table(known, missing):
    """Prints how many tests passed, by service."""
    print(f"{'tempest':<12}{'real services':>15}{'here':>8}{'missing':>10}")
    services = sorted({name.split(".")[2] for name in known})
    for service in services + [""]:
        prefix = f"tempest.api.{service}."
        of_it = [name for name in known if not service or name.startswith(prefix)]
        lost = sum(name in missing for name in of_it)
        print(f"{service or 'all':<12}{len(of_it):>15}{len(of_it) - lost:>8}{lost:>10}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cloud", default="admin")
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--list", type=pathlib.Path, default=pathlib.Path(__file__).with_name("tests.txt"))
    parser.add_argument("--only", type=re.compile, default=re.compile(""))
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    lines = [line.partition("#") for line in asked.list.read_text().splitlines() if line and line[0] != "#"]
    known = {name.strip(): why.strip() for name, _, why in lines if asked.only.search(name)}
    with open(os.environ["OS_CLIENT_CONFIG_FILE"], encoding="utf-8") as clouds:
        cloud = yaml.safe_load(clouds)["clouds"][asked.cloud]
    folder = asked.dir.resolve()
    prepare(folder, cloud)
    (folder / "run.log").unlink(missing_ok=True)
    outcomes = run(folder, known, asked.workers)
    doubtful = [name for name, why in known.items() if not why and outcomes.get(name, [""])[0] != "success"]
    if doubtful:
        print("once more, by themselves:", *doubtful, sep="\n  ")
        outcomes.update(run(folder, doubtful, 1))
    missing = {}
    for name in known:
        outcome, text = outcomes.get(name, ("not run", ""))
        if outcome != "success":
            missing[name] = (outcome, reason(text))
    for name, (outcome, said) in outcomes.items():
        if name not in known and outcome != "success":
            print(f"{outcome}: {name}: {reason(said)}")
    unexpected = {name: said for name, said in missing.items() if not known[name]}
    table(known, missing)
    for name, (outcome, said) in missing.items():
        print(f"  {outcome}: {name.removeprefix('tempest.api.')}: {known[name] or said}")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
