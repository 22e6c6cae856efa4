"""Runs commands of python-openstackclient in one process as a person would type them, and prints what they said.

    cli.py CLOUD      a cloud of $OS_CLIENT_CONFIG_FILE

Everything it makes is called drover-clients-*, and is gone at the end.
"""

import contextlib
import io
import json
import logging
import os
import shlex
import sys

from openstackclient import shell
from transcript import tell

NAME = "drover-clients-cli"


def openstack(line, shown=True):
    """Runs one command; tells its exit code and the fields of its answer, or its complaint."""
    words = shlex.split(line.format(NAME=NAME))
    asks = words[0] != "console" and any(word in ("list", "show", "create") for word in words)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = shell.main([*words, *(["-f", "json"] if asks else [])])
        except SystemExit as end:
            code = end.code
    # Each run of the shell leaves its handlers behind, which would write into a closed stream.
    for logger in (logging.getLogger(), logging.getLogger("openstackclient")):
        logger.handlers.clear()
    answer = json.loads(out.getvalue()) if asks and code == 0 else None
    if shown:
        first = answer[0] if isinstance(answer, list) and answer else answer or {}
        said = " ".join(sorted(first)) if code == 0 else err.getvalue().strip().splitlines()[-1]
        tell("openstack " + line.format(NAME=NAME), f"{code} {said}".strip())
    return answer


def main():
    os.environ["OS_CLOUD"] = sys.argv[1]
    external = openstack("network list --external")[0]["ID"]
    image = openstack("image list --sort-column Name")[0]["ID"]
    openstack("token issue")
    openstack("catalog list")
    openstack("flavor list")
    openstack("flavor show m1.small")
    openstack("flavor show no-such-flavor")
    openstack("image show no-such-image")
    openstack("availability zone list --compute")
    openstack("limits show --absolute")
    openstack("quota show --compute")
    openstack("network create {NAME}")
    openstack("subnet create --network {NAME} --subnet-range 10.98.0.0/24 {NAME}")
    openstack("router create {NAME}")
    openstack(f"router set --external-gateway {external} {{NAME}}", shown=False)
    openstack("router add subnet {NAME} {NAME}")
    openstack("security group create {NAME}")
    openstack("security group rule create --protocol tcp --dst-port 22 {NAME}")
    openstack("port create --network {NAME} --security-group {NAME} --tag drover {NAME}")
    openstack("port list --tags drover --network {NAME}")
    openstack("server group create --policy soft-anti-affinity {NAME}")
    openstack(f"volume create --image {image} --size 2 {{NAME}}", shown=False)
    openstack(f"server create --flavor m1.small --image {image} --port {{NAME}} --property uid=1 --wait {{NAME}}", shown=False)
    openstack("server show {NAME}")
    openstack("server list --name ^{NAME}$")
    openstack("server list --limit 1 --name ^{NAME}$")
    openstack("server set --property more=2 {NAME}")
    openstack("server add volume {NAME} {NAME}", shown=False)
    openstack("server volume list {NAME}")
    openstack("volume delete {NAME}")
    openstack(f"floating ip create --port {{NAME}} {external}", shown=False)
    openstack("floating ip list --port {NAME}")
    openstack("console log show --lines 5 no-such-server")
    openstack("server stop {NAME}")
    openstack("server show no-such-server")
    openstack("server remove volume {NAME} {NAME}", shown=False)
    openstack("server event list {NAME}")
    openstack("server delete --wait {NAME}")
    for address in openstack("floating ip list --port {NAME}", shown=False):
        openstack(f"floating ip delete {address['ID']}", shown=False)
    openstack("network delete {NAME}")
    openstack("router remove subnet {NAME} {NAME}")
    openstack("router delete {NAME}")
    openstack("port delete {NAME}")
    openstack("security group delete {NAME}")
    openstack("server group delete {NAME}")
    openstack("network delete {NAME}")
    openstack("volume delete {NAME}")


if __name__ == "__main__":
    main()
