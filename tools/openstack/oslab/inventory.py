"""All that the services hold, a line for each thing, so that two moments can be compared: inventory.py DIRECTORY."""
import sys

from oslab import clouds

cloud = clouds.connect(sys.argv[1], 'admin')
everywhere = dict(all_projects=True)
LISTS = {
    'server': cloud.compute.servers(**everywhere),
    'server group': cloud.compute.server_groups(**everywhere),
    'volume': cloud.block_storage.volumes(**everywhere),
    'network': cloud.network.networks(),
    'port': cloud.network.ports(),
    'router': cloud.network.routers(),
    'floating IP': cloud.network.ips(),
    'security group': cloud.network.security_groups(),
    'image': cloud.image.images(),
    'project': cloud.identity.projects(),
    'user': cloud.identity.users(),
}
# What tells that somebody touched a thing which is still there.
TELLING = ('status', 'device_id', 'port_id', 'revision_number', 'updated_at', 'metadata', 'tags')


def line(kind, thing):
    told = {name: thing.get(name) for name in TELLING if thing.get(name) is not None}
    return f'{kind} {thing["id"]} {thing.get("name") or "-"} {told}'


print('\n'.join(sorted(line(kind, thing) for kind, things in LISTS.items() for thing in things)))
