"""Service users, roles, services and endpoints; makes what is missing: catalog.py DIRECTORY PORTBASE."""
import sys

from oslab import clouds

directory, base = sys.argv[1], int(sys.argv[2])
clouds.write(directory, f'http://127.0.0.1:{5000 + base}/v3')
identity = clouds.connect(directory, 'admin').identity

SERVICES = {
    'image': ('glance', 9292, ''),
    'placement': ('placement', 8778, ''),
    'compute': ('nova', 8774, '/v2.1'),
    'network': ('neutron', 9696, ''),
    'block-storage': ('cinder', 8776, '/v3'),
}
project = identity.find_project('service') or identity.create_project(name='service', domain_id='default')
roles = {role.name: role for role in identity.roles()}
for name in ('service', 'member', 'reader'):
    if name not in roles:
        roles[name] = identity.create_role(name=name)
services = {service.type: service for service in identity.services()}
endpoints = {(endpoint.service_id, endpoint.interface) for endpoint in identity.endpoints()}
for kind, (name, port, path) in SERVICES.items():
    user = identity.find_user(name) or identity.create_user(
        name=name, password='service-secret', domain_id='default', default_project_id=project.id)
    for role in ('admin', 'service'):
        identity.assign_project_role_to_user(project, user, roles[role])
    service = services.get(kind) or identity.create_service(type=kind, name=name)
    for interface in ('public', 'internal'):
        if (service.id, interface) not in endpoints:
            identity.create_endpoint(service_id=service.id, interface=interface, region_id='RegionOne',
                                     url=f'http://127.0.0.1:{port + base}{path}')
