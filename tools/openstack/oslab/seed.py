"""What a project needs before its first machine; makes what is missing: seed.py DIRECTORY."""
import hashlib
import sys

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from oslab import clouds

directory = sys.argv[1]
admin = clouds.connect(directory, 'admin')
CLUSTER = 'metakube-mmxfcmgjkx'  # as in the documentation's manifests


def people():
    identity = admin.identity
    project = identity.find_project('drover') or identity.create_project(name='drover', domain_id='default')
    user = identity.find_user('drover') or identity.create_user(
        name='drover', password='drover-secret', domain_id='default', default_project_id=project.id)
    identity.assign_project_role_to_user(project, user, identity.find_role('member'))
    drover = clouds.connect(directory, 'drover')
    known = drover.identity.find_application_credential(user.id, 'drover')
    if known is None or 'drover-appcred' not in clouds.read(directory):
        if known is not None:
            drover.identity.delete_application_credential(user.id, known.id)
        made = drover.identity.create_application_credential(user.id, 'drover', description='machine manager')
        clouds.write(directory, drover.auth['auth_url'], drover_appcred=dict(
            application_credential_id=made.id, application_credential_secret=made.secret))
    return drover


def compute(drover):
    for name, vcpus, ram, disk in (
            ('m1.small', 1, 2048, 20), ('m1.medium', 2, 4096, 40),
            ('kaas.small', 2, 4096, 0),  # boots from a volume only
            ('m1.impossible', 1, 2000000, 20)):  # fits no host
        if not admin.compute.find_flavor(name):
            admin.compute.create_flavor(name=name, vcpus=vcpus, ram=ram, disk=disk)
    hosts = {service.host for service in admin.compute.services(binary='nova-compute')}
    zones = {aggregate.name: aggregate for aggregate in admin.compute.aggregates()}
    for zone, members in (('az-1', ('oslab-5', 'oslab-6')), ('az-2', ('oslab-7', 'oslab-8'))):
        members = hosts.intersection(members)
        if members:
            aggregate = zones.get(zone) or admin.compute.create_aggregate(name=zone, availability_zone=zone)
            for host in members.difference(aggregate.hosts or []):
                admin.compute.add_host_to_aggregate(aggregate, host)
    if not drover.compute.find_keypair('drover'):
        public = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
        drover.compute.create_keypair(name='drover', type='ssh', public_key=public + ' drover')
    if not drover.compute.find_server_group(CLUSTER):
        drover.compute.create_server_group(name=CLUSTER, policy='soft-anti-affinity')


def images():
    for name, distribution, version in (
            ('Ubuntu Noble 24.04 (2024-08-01)', 'ubuntu', '24.04'), ('Flatcar Stable 3975.2.1', 'flatcar', '3975.2.1')):
        if not admin.image.find_image(name):
            data = name.encode().ljust(65536, b'\0')
            admin.create_image(
                name, data=data, disk_format='raw', container_format='bare', visibility='public', min_disk=1,
                min_ram=512, wait=True, os_distro=distribution, os_version=version,
                md5=hashlib.md5(data).hexdigest(), sha256=hashlib.sha256(data).hexdigest())


def network(drover):
    external = admin.network.find_network('ext-net') or admin.network.create_network(
        name='ext-net', is_router_external=True, provider_network_type='flat', provider_physical_network='public')
    if not admin.network.find_subnet('ext-subnet'):
        admin.network.create_subnet(name='ext-subnet', network_id=external.id, ip_version=4, cidr='100.64.0.0/16',
                                    is_dhcp_enabled=False)
    inner = drover.network.find_network(CLUSTER) or drover.network.create_network(name=CLUSTER)
    subnet = drover.network.find_subnet(CLUSTER) or drover.network.create_subnet(
        name=CLUSTER, network_id=inner.id, ip_version=4, cidr='192.168.48.0/20',
        dns_nameservers=['192.0.2.53'])
    router = drover.network.find_router(CLUSTER) or drover.network.create_router(
        name=CLUSTER, external_gateway_info={'network_id': external.id})
    if not list(drover.network.ports(device_id=router.id, network_id=inner.id)):
        drover.network.add_interface_to_router(router, subnet_id=subnet.id)
    if drover.network.find_security_group(CLUSTER) is None:
        drover.network.create_security_group(name=CLUSTER, description='worker nodes')


def volumes():
    if not any(kind.name == 'ssd' for kind in admin.block_storage.types()):
        admin.block_storage.create_type(name='ssd', extra_specs={'volume_backend_name': 'fake'})


drover = people()
compute(drover)
images()
network(drover)
volumes()
