"""Drives one cloud with openstacksdk as a node provider would, and prints what it saw.

    sdk.py CLOUD      a cloud of $OS_CLIENT_CONFIG_FILE, with a password; CLOUD-appcred beside it has an application credential

Everything it makes is called drover-clients-*, and is gone at the end. Needs an image, a flavor m1.small and an external network.
"""

import contextlib
import sys
import time

import keystoneauth1.exceptions
import openstack
from openstack import exceptions
from transcript import tell

NAME = "drover-clients-sdk"
PATIENCE = 180
openstack.enable_logging(False)


def fails(step, call, *args, **rest):
    """Tells the class of the error that a call ends in."""
    try:
        call(*args, **rest)
    except exceptions.HttpException as error:
        tell(step, f"{type(error).__name__} {error.status_code} {error.details or error.message}")
    except (exceptions.SDKException, keystoneauth1.exceptions.HttpError) as error:
        # Of the login: keystoneauth has classes of its own, which SDK wraps or not.
        tell(step, f"{type(error).__name__} {error}")
    else:
        tell(step, "no error")


def ask(proxy, method, path, **rest):
    """A request that SDK would not make by itself."""
    exceptions.raise_from_response(getattr(proxy, method)(path, **rest))


def until(look, what):
    """Waits until what is looked at is as wanted."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        seen = look()
        if what(seen):
            return seen
        time.sleep(0.3)
    sys.exit(f"gave up after {PATIENCE} s")


def shape(resource):
    """The names of the fields that have a value."""
    fields = resource.to_dict(computed=False, original_names=True)
    return " ".join(sorted(name for name, value in fields.items() if value is not None and name != "location"))


def login(cloud):
    """Every way to log in, and what the token says."""
    connection = openstack.connect(cloud=cloud, compute_default_microversion="2.90")
    for name in (cloud, f"{cloud}-appcred"):
        access = openstack.connect(cloud=name).session.auth.get_access(connection.session)
        tell(f"login {name.removeprefix(cloud) or 'password'}", f"{access.project_name} {sorted(access.role_names)}")
    auth = dict(connection.config.config["auth"], password="wrong")
    fails("login with a wrong password", openstack.connect(auth=auth, region_name=connection.config.region_name).authorize)
    token = openstack.connect(
        auth_type="v3token",
        auth={
            "auth_url": auth["auth_url"],
            "token": connection.auth_token,
            "project_name": auth["project_name"],
            "project_domain_name": "Default",
        },
        region_name=connection.config.region_name,
    )
    tell("login with a token", token.session.auth.get_access(token.session).project_name)
    for service in ("compute", "network", "image", "block-storage"):
        proxy = getattr(connection, service.replace("-", "_"))
        data = proxy.get_endpoint_data()
        tell(f"discover {service}", f"{data.api_version} {data.min_microversion} {data.max_microversion}")
    fails("a microversion too high", ask, connection.compute, "get", "/servers", microversion="2.999")
    return connection


def lookups(cloud):
    """Finds what a server is made of: by name, by id and by nothing."""
    image = next(cloud.image.images(sort="name:asc", status="active"))
    tell("image", shape(image))
    flavor = cloud.compute.find_flavor("m1.small")
    tell("flavor", shape(flavor))
    external = next(cloud.network.networks(is_router_external=True))
    tell("external network", shape(external))
    tell("find nothing", [
        find("no-such-thing") for find in
        (cloud.compute.find_flavor, cloud.image.find_image, cloud.network.find_network, cloud.compute.find_server)
    ])
    nobody = "00000000-0000-4000-8000-000000000000"
    for kind, get in {
        "server": cloud.compute.get_server, "flavor": cloud.compute.get_flavor, "image": cloud.image.get_image,
        "port": cloud.network.get_port, "floating IP": cloud.network.get_ip, "volume": cloud.block_storage.get_volume,
        "server group": cloud.compute.get_server_group, "keypair": cloud.compute.get_keypair,
    }.items():
        fails(f"get a {kind} that is not there", get, nobody)
    zones = [zone for zone in cloud.compute.availability_zones() if zone.state["available"]]
    tell("zones", zones[0].hosts)
    return image, flavor, external


def quotas(cloud):
    """What a project may have, in three dialects."""
    project = cloud.current_project_id
    tell("quota compute", shape(cloud.compute.get_quota_set(project, usage=True)))
    tell("quota network", shape(cloud.network.get_quota(project, details=True)))
    # Types of volumes have names of the cloud's own.
    types = tuple("_" + kind.name for kind in cloud.block_storage.types())
    names = shape(cloud.block_storage.get_quota_set(project, usage=True)).split()
    tell("quota volume", " ".join(name for name in names if not name.endswith(types)))
    tell("quotas of each type", sum(name.endswith(types) for name in names) // len(types))
    tell("limits", shape(cloud.compute.get_limits().absolute))
    fails("set a quota", cloud.compute.update_quota_set, project, instances=5)


def net(cloud, external, later):
    """A network with a way out, a security group and two ports."""
    network = cloud.network.create_network(name=NAME)
    later.callback(cloud.network.delete_network, network)
    tell("network", shape(network))
    subnet = cloud.network.create_subnet(
        name=NAME, network_id=network.id, cidr="10.99.0.0/24", ip_version=4, dns_nameservers=["192.0.2.53"]
    )
    pools = [(pool["start"], pool["end"]) for pool in subnet.allocation_pools]
    tell("subnet", f"{shape(subnet)}: {subnet.gateway_ip} {pools}")
    fails("a subnet that overlaps", cloud.network.create_subnet, network_id=network.id, cidr="10.99.0.0/25", ip_version=4)
    router = cloud.network.create_router(name=NAME, external_gateway_info={"network_id": external.id})
    later.callback(cloud.network.delete_router, router)
    cloud.network.add_interface_to_router(router, subnet_id=subnet.id)
    later.callback(cloud.network.remove_interface_from_router, router, subnet_id=subnet.id)
    fails("delete a network in use", cloud.network.delete_network, network)
    group = cloud.network.create_security_group(name=NAME)
    later.callback(cloud.network.delete_security_group, group)
    tell("security group", f"{shape(group)}: {len(group.security_group_rules)} rules")
    rule = {"security_group_id": group.id, "direction": "ingress", "protocol": "tcp", "port_range_min": 22, "port_range_max": 22}
    tell("rule", shape(cloud.network.create_security_group_rule(**rule)))
    fails("a rule twice", cloud.network.create_security_group_rule, **rule)
    fails("a rule without sense", cloud.network.create_security_group_rule, **dict(rule, port_range_max=21))
    fails("a group named default", cloud.network.create_security_group, name="default")
    return network, group


def port(cloud, network, group, later):
    """A port as a provider makes it, with the errors that it meets."""
    made = cloud.network.create_port(
        network_id=network.id, name=NAME, description="uid-1", security_groups=[group.id],
        allowed_address_pairs=[{"ip_address": "10.100.0.0/16"}],
    )
    later.callback(cloud.network.delete_port, made)
    tell("port", f"{made.status} {shape(made)}")
    cloud.network.set_tags(made, ["drover", "uid-1"])
    found = list(cloud.network.ports(tags="drover,uid-1", name=NAME.upper()))
    tell("ports by tags and by name without case", len(found))
    tell("ports by address", len(list(cloud.network.ports(fixed_ips=f"ip_address={made.fixed_ips[0]['ip_address']}"))))
    tell("ports of another tag", len(list(cloud.network.ports(tags="other", network_id=network.id))))
    fails("ports by a filter that is none", ask, cloud.network, "get", "/ports?colour=red")
    address = made.fixed_ips[0]["ip_address"]
    fails("an address twice", cloud.network.create_port, network_id=network.id, fixed_ips=[{"ip_address": address}])
    fails("an address of elsewhere", cloud.network.create_port, network_id=network.id, fixed_ips=[{"ip_address": "10.98.0.5"}])
    fails("a port on no network", cloud.network.create_port, network_id="00000000-0000-4000-8000-000000000000")
    fails("a port with an odd field", ask, cloud.network, "post", "/ports", json={"port": {"network_id": network.id, "colour": "red"}})
    fails("a change of an old revision", ask, cloud.network, "put", f"/ports/{made.id}", json={"port": {"name": "x"}},
          headers={"If-Match": "revision_number=0"})
    for at in range(3):
        extra = cloud.network.create_port(network_id=network.id, name=f"{NAME}-{at}")
        later.callback(cloud.network.delete_port, extra)
    pages = cloud.network.ports(network_id=network.id, limit=2)
    tell("ports in pages of two", sum(1 for one in pages if one.name.startswith(NAME)))
    return made


def volume(cloud, image, later):
    """A volume to boot from."""
    made = cloud.block_storage.create_volume(name=NAME, size=2, image_id=image.id, metadata={"uid": "1"})
    later.callback(gone, cloud.block_storage.get_volume, cloud.block_storage.delete_volume, made.id)
    tell("volume", f"{made.status} {shape(made)}")
    made = until(lambda: cloud.block_storage.get_volume(made.id), lambda seen: seen.status not in ("creating", "downloading"))
    tell("volume made", f"{made.status} bootable={made.is_bootable} {shape(made)}")
    tell("volumes by metadata", len(list(cloud.block_storage.volumes(metadata="{'uid': '1'}", name=NAME))))
    fails("a volume of no type", cloud.block_storage.create_volume, size=1, volume_type="no-such-type")
    fails("a volume of no size", cloud.block_storage.create_volume, size=0)
    fails("a volume of no image", cloud.block_storage.create_volume, size=1, image_id="00000000-0000-4000-8000-000000000000")
    return made


def gone(get, delete, key):
    """Deletes and waits for the end."""
    delete(key)

    def there():
        try:
            return get(key)
        except exceptions.NotFoundException:
            return None

    until(there, lambda seen: seen is None)


def refused(cloud, image, flavor, network, made):
    """What a server may not be."""
    good = {"name": f"{NAME}-bad", "image_id": image.id, "flavor_id": flavor.id, "networks": [{"uuid": network.id}]}
    nobody = "00000000-0000-4000-8000-000000000000"
    for step, change in {
        "of no image": {"image_id": nobody}, "of no flavor": {"flavor_id": nobody},
        "on no network": {"networks": [{"uuid": nobody}]}, "with no port": {"networks": [{"port": nobody}]},
        "with no key": {"key_name": "no-such-key"}, "in no zone": {"availability_zone": "no-such-zone"},
        "in no group": {"scheduler_hints": {"group": nobody}},
        "with no security group": {"security_groups": [{"name": "no-such-group"}]},
        "with a long name": {"name": "x" * 256}, "with a long tag": {"tags": ["x" * 61]},
        "with a number in its metadata": {"metadata": {"a": 1}}, "with 129 items": {"metadata": {f"k{n}": "v" for n in range(129)}},
    }.items():
        fails(f"a server {step}", cloud.compute.create_server, **{**good, **change})
    fails("a server of a flavor without disk", cloud.compute.create_server,
          **{**good, "flavor_id": cloud.compute.find_flavor("kaas.small").id})
    fails("a volume that is in use, deleted", cloud.block_storage.delete_volume, made["volume"].id)
    fails("a port that is in use, taken", cloud.compute.create_server, **{**good, "networks": [{"port": made["port"].id}]})


def server(cloud, image, flavor, made, later):
    """A server of its own port and volume, with a floating IP, from the 202 to the 404."""
    group = cloud.compute.create_server_group(name=NAME, policy="soft-anti-affinity")
    later.callback(cloud.compute.delete_server_group, group)
    tell("server group", f"{group.policy} {shape(group)}")
    keypair = cloud.compute.create_keypair(
        name=NAME, public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP1xU+kSdCtTbr+si1AQFj+Ttbwbk1C8VW/P8YHpu7WW drover"
    )
    later.callback(cloud.compute.delete_keypair, keypair)
    tell("keypair", f"{keypair.type} {shape(keypair)}")
    fails("a keypair twice", cloud.compute.create_keypair, name=NAME, public_key=keypair.public_key)
    disk = {"boot_index": 0, "uuid": made["volume"].id, "source_type": "volume", "destination_type": "volume",
            "delete_on_termination": False}
    started = cloud.compute.create_server(
        name=NAME, flavor_id=flavor.id, networks=[{"port": made["port"].id}], block_device_mapping=[disk],
        key_name=NAME, metadata={"uid": "1"}, tags=["drover", "uid-1"], user_data="IyEvYmluL3NoCg==", config_drive=True,
        scheduler_hints={"group": group.id},
    )
    later.callback(gone, cloud.compute.get_server, cloud.compute.delete_server, started.id)
    seen = cloud.compute.get_server(started.id)
    tell("server at once", f"{seen.status} {seen.vm_state}")
    running = until(lambda: cloud.compute.get_server(started.id), lambda one: one.status not in ("BUILD",))
    tell("server", f"{running.status} {running.vm_state} {running.power_state} {shape(running)}")
    tell("its image, drive, groups", [running.image and running.image.id, running.has_config_drive, len(running.server_groups)])
    kinds = [entry["OS-EXT-IPS:type"] for entries in running.addresses.values() for entry in entries]
    tell("its addresses", kinds)
    tell("its volumes", [shape(one) for one in cloud.compute.volume_attachments(running.id)])
    tell("its ports", [one.port_state for one in cloud.compute.server_interfaces(running.id)])
    tell("its actions", [one.action for one in cloud.compute.server_actions(running.id)])
    bound = cloud.network.get_port(made["port"].id)
    tell("its port", f"{bound.device_owner.split(':')[0]} {bound.device_id == running.id}")
    tell("members of its group", len(cloud.compute.get_server_group(group.id).member_ids))
    return running


def lists(cloud, running):
    """Filters and pages."""
    def count(step, **query):
        tell(f"servers {step}", len([one for one in cloud.compute.servers(**query) if one.name.startswith(NAME)]))

    count("by name", name=f"^{NAME}$")
    count("by a part of it, without case", name="CLIENTS-S")
    count("by tags", tags="drover,uid-1")
    count("by a tag in capitals", tags="UID-1")
    count("by another tag", tags="drover,uid-2")
    count("by status", status="active", name=NAME)
    count("by address", ip=next(iter(running.addresses.values()))[0]["addr"].replace(".", "\\."))
    count("in pages of one", limit=1)
    fails("servers after one that is not there", lambda: list(cloud.compute.servers(marker="00000000-0000-4000-8000-000000000000")))
    fails("servers by no expression", lambda: list(cloud.compute.servers(name="(")))
    fails("servers by a filter that is none", ask, cloud.compute, "get", "/servers?colour=red", microversion="2.90")


def labels(cloud, running):
    """Metadata, tags and name of a server."""
    cloud.compute.set_server_metadata(running, more="2")
    tell("metadata", sorted(cloud.compute.get_server(running.id).metadata))
    cloud.compute.add_tag_to_server(running, "third")
    tell("tags", sorted(cloud.compute.get_server(running.id).tags))
    fails("a tag with a comma", ask, cloud.compute, "put", f"/servers/{running.id}/tags", json={"tags": ["a,b"]}, microversion="2.90")
    fails("a tag that is not there", ask, cloud.compute, "delete", f"/servers/{running.id}/tags/none", microversion="2.90")
    tell("renamed", cloud.compute.update_server(running, name=f"{NAME}-2").name)
    cloud.compute.update_server(running, name=NAME)


def floating(cloud, external, network, made, running, later):
    """An address of the outside, which outlives the server."""
    address = cloud.network.create_ip(floating_network_id=external.id, port_id=made["port"].id, description="uid-1")
    later.callback(cloud.network.delete_ip, address)
    tell("floating IP", f"{address.status} {shape(address)}")
    until(lambda: cloud.network.get_ip(address.id), lambda seen: seen.status == "ACTIVE")
    fails("a second one", cloud.network.create_ip, floating_network_id=external.id, port_id=made["port"].id)
    fails("one of an inner network", cloud.network.create_ip, floating_network_id=network.id)
    fails("one with tags", ask, cloud.network, "post", "/floatingips",
          json={"floatingip": {"floating_network_id": external.id, "tags": ["a"]}})

    def kinds():
        seen = cloud.compute.get_server(running.id)
        return [entry["OS-EXT-IPS:type"] for entries in seen.addresses.values() for entry in entries]

    tell("its addresses", until(kinds, lambda seen: "floating" in seen))
    return address


def power(cloud, running):
    """Stop, start, reboot, console."""
    cloud.compute.stop_server(running)
    off = until(lambda: cloud.compute.get_server(running.id), lambda seen: seen.status == "SHUTOFF")
    tell("stopped", f"{off.vm_state} {off.power_state}")
    fails("stopped twice", cloud.compute.stop_server, running)
    cloud.compute.start_server(running)
    until(lambda: cloud.compute.get_server(running.id), lambda seen: seen.status == "ACTIVE")
    cloud.compute.reboot_server(running, "SOFT")
    on = until(lambda: cloud.compute.get_server(running.id), lambda seen: seen.status == "ACTIVE" and not seen.task_state)
    tell("rebooted", f"{on.vm_state} {on.power_state}")
    tell("console", sorted(cloud.compute.get_server_console_output(running.id, length=5)))
    fails("an action that is none", ask, cloud.compute, "post", f"/servers/{running.id}/action", json={"dance": None})
    cloud.compute.lock_server(running)
    tell("locked", cloud.compute.get_server(running.id).is_locked)
    cloud.compute.unlock_server(running)


def rebuilt(cloud, image, flavor, network, later):
    """A server on its host's disk, made anew from an image."""
    started = cloud.compute.create_server(name=f"{NAME}-image", image_id=image.id, flavor_id=flavor.id,
                                          networks=[{"uuid": network.id}])
    later.callback(gone, cloud.compute.get_server, cloud.compute.delete_server, started.id)
    running = until(lambda: cloud.compute.get_server(started.id), lambda one: one.status != "BUILD")
    tell("a server of an image", f"{running.status} {running.image.id == image.id}")
    again = cloud.compute.rebuild_server(running, image=image.id)
    tell("rebuilding", f"{again.status} {shape(again)}")
    done = until(lambda: cloud.compute.get_server(running.id), lambda one: one.status == "ACTIVE" and not one.task_state)
    tell("rebuilt", done.id == running.id)
    pages = list(cloud.compute.servers(details=False, limit=1, name=f"^{NAME}"))
    tell("two servers in pages of one", len(pages))
    newest = next(cloud.compute.servers(sort_key="created_at", sort_dir="desc", name=f"^{NAME}"))
    tell("the newest of them", newest.name)


def main():
    cloud = login(sys.argv[1])
    image, flavor, external = lookups(cloud)
    quotas(cloud)
    with contextlib.ExitStack() as later:
        network, group = net(cloud, external, later)
        made = {"volume": volume(cloud, image, later), "port": port(cloud, network, group, later)}
        with contextlib.ExitStack() as first:
            running = server(cloud, image, flavor, made, first)
            refused(cloud, image, flavor, network, made)
            lists(cloud, running)
            labels(cloud, running)
            address = floating(cloud, external, network, made, running, later)
            power(cloud, running)
            rebuilt(cloud, image, flavor, network, first)
        fails("a server deleted twice", cloud.compute.delete_server, running.id, ignore_missing=False)
        left = cloud.network.get_port(made["port"].id)
        tell("its port, left behind", f"{left.status} {left.device_id!r} {left.device_owner!r}")
        ended = until(lambda: cloud.block_storage.get_volume(made["volume"].id), lambda seen: seen.status == "available")
        tell("its volume, left behind", f"{ended.status} {ended.attachments}")
        left = cloud.network.get_ip(address.id)
        tell("its floating IP, left behind", f"{left.status} {left.port_id == made['port'].id} {left.port_details['device_id']!r}")
    tell("left in the end", [
        sum(1 for one in all() if (one.name or "").startswith(NAME)) for all in
        (cloud.compute.servers, cloud.network.ports, cloud.network.networks, cloud.block_storage.volumes, cloud.compute.server_groups)
    ])


if __name__ == "__main__":
    main()
